"""Copies of a SQLite database: one of a moment, made while a service goes on writing, and one put where none is.

A copy is made beside its place under another name, read through, and only then given its name, which must be free: a
file that is there is whole. PostgreSQL has programs for this. Knows no table but the one that has the revision.
"""

import errno
import os
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final
from urllib.parse import quote

from offpolicy_monitor.errors import ConfigurationError
from offpolicy_monitor.store import migrate
from offpolicy_monitor.store.failures import Damaged, translated
from offpolicy_monitor.store.lock import lock_beside, make_folder
from offpolicy_monitor.store.session import parse_url, sqlite_file
from offpolicy_monitor.store.sqlite import BUSY_SECONDS, SUFFIXES

#: Pages that are copied between two looks at how many were written since the disk was last waited for.
PAGES: Final = 256
#: Bytes after which the disk is waited for: a service on the same one waits for it too, and less each time.
SYNCED_BYTES: Final = 8 << 20
POSTGRES: Final = "PostgreSQL is backed up and restored by its own programs, pg_dump and pg_restore: see docs/backup.md"
#: What an older database may have left beside a file; SQLite would take it for a part of the new one.
LEFT_BESIDE: Final = (*SUFFIXES[1:], "-journal")
#: What to do about a damaged backup.
OLDER: Final = "take another backup"
#: What file systems say on which a file has one name.
WITHOUT_LINKS: Final = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS)


def back_up(url: str, target: Path) -> str | None:
    """Copy the database to a file, as it is at this moment; answers the revision of its schema.

    Nobody who writes it waits for this. Raises ConfigurationError where the file is there already.
    """
    source = _file(url)
    if not source.is_file():
        raise ConfigurationError(f"there is no database at {source}")
    return _copied(source, target, "rw")


def restore(url: str, source: Path) -> str | None:
    """Make the database of a copy; answers the revision of its schema.

    Raises ConfigurationError where a database is there already or is in use, and where the copy is none that this
    version reads.
    """
    target = _file(url)
    if not source.is_file():
        raise ConfigurationError(f"there is no backup at {source}")
    make_folder(target)
    with closing(lock_beside(target)):
        for path in (f"{target}{suffix}" for suffix in LEFT_BESIDE):
            if os.path.lexists(path):
                raise ConfigurationError(f"{path} is left of another database: move it away first")
        # A log beside the copy is a part of it; without one, nothing is made there.
        has_log = Path(f"{source}{SUFFIXES[1]}").exists()
        return _copied(source, target, "ro" if has_log else "ro&immutable=1", known=True)


def _file(url: str) -> Path:
    path = sqlite_file(parse_url(url))
    if path is None:
        raise ConfigurationError(POSTGRES)
    return path


def _copied(source: Path, target: Path, mode: str, known: bool = False) -> str | None:
    _refuse_existing(target)
    with _beside(target) as made:
        with translated(source), _connected(source, mode) as reading:
            # From the first read on, this connection sees the database as it is now, and holds up nobody who writes.
            reading.execute("BEGIN")
            reading.execute("SELECT count(*) FROM sqlite_master").fetchone()
            with translated(target):
                _copy(reading, made)
        revision = _examined(made, source, *([OLDER] if known else []))
        if revision is None or (known and not migrate.is_known(revision)):
            raise ConfigurationError(
                f"{source} is no database of offpolicy-monitor"
                if revision is None
                else f"{source}: {migrate.from_newer(revision)}"
            )
        with translated(target):
            _name(made, target)
    return revision


def _copy(reading: sqlite3.Connection, target: Path) -> None:
    """Every page; the disk is waited for in between."""
    with open(target, "rb") as written, _connected(target, "rw") as writing:
        size = reading.execute("PRAGMA page_size").fetchone()[0]
        synced = 0

        def copied(_status: int, remaining: int, total: int) -> None:
            nonlocal synced
            if (total - remaining) * size - synced >= SYNCED_BYTES:
                synced = (total - remaining) * size
                os.fdatasync(written.fileno())

        reading.backup(writing, pages=PAGES, progress=copied)


def _examined(copy: Path, source: Path, *advice: str) -> str | None:
    """The revision of a copy, every page and index of which was read; Damaged names what it was made of."""
    with translated(source), _connected(copy, "ro&immutable=1") as reading:
        found = [line for (line,) in reading.execute(f"PRAGMA integrity_check({migrate.MOST_DAMAGE})")]
        if found != ["ok"]:
            raise Damaged(source, "; ".join(found), *advice)
        if not reading.execute("SELECT count(*) FROM sqlite_master WHERE name = 'alembic_version'").fetchone()[0]:
            return None
        row = reading.execute("SELECT version_num FROM alembic_version").fetchone()
    return None if row is None else str(row[0])


@contextmanager
def _connected(file: Path, mode: str) -> Iterator[sqlite3.Connection]:
    address = f"file:{quote(str(file))}?mode={mode}"
    with closing(sqlite3.connect(address, uri=True, timeout=BUSY_SECONDS, isolation_level=None)) as connection:
        yield connection


@contextmanager
def _beside(target: Path) -> Iterator[Path]:
    """An empty file in the folder of another, gone afterwards unless it was named."""
    with translated(target):
        descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    os.close(descriptor)
    try:
        yield Path(name)
    finally:
        for suffix in ("", *LEFT_BESIDE):
            with suppress(FileNotFoundError):
                os.unlink(f"{name}{suffix}")


def _refuse_existing(target: Path) -> None:
    if os.path.lexists(target):
        raise ConfigurationError(f"{target} is there already: name another file, or move it away")


def _name(made: Path, target: Path) -> None:
    """Give the copy its name, durably; whoever took the name meanwhile keeps it."""
    _sync(made, os.O_RDWR)
    try:
        os.link(made, target)
    except FileExistsError:
        _refuse_existing(target)
    except OSError as error:
        if error.errno not in WITHOUT_LINKS:
            raise
        _refuse_existing(target)
        os.rename(made, target)
    _sync(target.parent, os.O_RDONLY)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
