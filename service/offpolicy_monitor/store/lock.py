"""The right to write to a SQLite file: one process at a time, held by a lock file beside it and on the file itself.

The lock file says who holds it; the lock on the file keeps out who comes by another name of it (a hard link). The
operating system drops both when their holder dies, however it dies. Knows files, no database.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import Final

from offpolicy_monitor.errors import ConfigurationError

#: (device, inode) of the files that this process writes. A second descriptor must not even be opened: closing it would
#: drop the locks that SQLite itself has on the file.
_held: Final[set[tuple[int, int]]] = set()


@contextmanager
def _usable(database: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ConfigurationError(f"{database} cannot be a database: {error.strerror}") from error


def make_folder(database: Path) -> None:
    """Make the folder of a database file; ConfigurationError where that cannot be."""
    with _usable(database):
        database.parent.mkdir(parents=True, exist_ok=True)


class WriterLock:
    """Held from construction to `release`; a second one on the same database raises ConfigurationError.

    So does a path that can hold no file. An empty file is made where there is none; `made_file` says so.
    """

    def __init__(self, database: Path) -> None:
        make_folder(database)
        self._beside = lock_beside(database)
        self.made_file = not database.exists()
        try:
            self._descriptor = _lock_itself(database)
        except ConfigurationError:
            self._beside.close()
            raise
        self._identity = _identity(os.fstat(self._descriptor))
        _held.add(self._identity)

    def release(self) -> None:
        """Let the next process write; twice is harmless. Called when SQLite has closed the file.

        The lock file stays: removing it would let two holders lock different files.
        """
        if self._beside.closed:
            return
        _held.discard(self._identity)
        os.close(self._descriptor)
        self._beside.close()

    def __enter__(self) -> "WriterLock":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.release()


def lock_beside(database: Path) -> FileIO:
    """The lock file, locked until it is closed: it keeps out who wants to write, and makes no database.

    Raises ConfigurationError where another process writes it.
    """
    with _usable(database):
        file = open(f"{database}.lock", "a+b", buffering=0)  # noqa: SIM115 - held until `release`
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.seek(0)
        holder = file.read(32).decode("ascii", "replace") or "unknown"
        file.close()
        raise ConfigurationError(
            f"{database} is being written by another process (pid {holder}): SQLite takes one writing process. "
            "Stop that one, or use PostgreSQL for several"
        ) from error
    file.truncate(0)
    file.write(str(os.getpid()).encode())
    return file


def _lock_itself(database: Path) -> int:
    """The descriptor of the database, locked; not by the kind of lock that SQLite uses, so neither sees the other."""
    if database.exists() and _identity(database.stat()) in _held:
        raise _linked(database)
    with _usable(database):
        descriptor = os.open(database, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise _linked(database) from error
    return descriptor


def _linked(database: Path) -> ConfigurationError:
    return ConfigurationError(
        f"{database} is being written under another name (a hard link): SQLite takes one name and one writing process. "
        "Use the other name, or a copy"
    )


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
