"""One SQLite file and the connections to it: commits are durable, and the file stays the one that is open.

SQLite goes on writing into a file that was deleted or replaced, and into a deleted write-ahead log: all of it is gone
with the process. A new connection would even begin another log beside the old one. So the files are compared before a
connection is made and around each commit, before anybody is told that something is stored.
"""

import os
import sqlite3
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from sqlalchemy import Connection, Engine, Pool, create_engine, event

from offpolicy_monitor.errors import Unavailable
from offpolicy_monitor.store.failures import driven

BUSY_SECONDS: Final = 5.0
#: Of a file that has no page yet: it would change nothing else until the next VACUUM, and wait for whoever writes.
NEW_FILE: Final = "PRAGMA auto_vacuum = INCREMENTAL"
SESSION: Final = (
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    "PRAGMA foreign_keys = ON",
    # A log that once grew large gives its room back.
    f"PRAGMA journal_size_limit = {64 << 20}",
)
#: The database, its write-ahead log, and the index of that. They stay the same while any connection is open.
SUFFIXES: Final = ("", "-wal", "-shm")
MEND: Final = "stop the service, put the file right, start it again"

#: Device and inode; None where there is no file.
Identity = tuple[int, int] | None


class Moved(Unavailable):
    """A file of the database is not the one that is open."""

    def __init__(self, file: str, found: Identity) -> None:
        what = "was deleted" if found is None else "was replaced by another file"
        super().__init__(503, "store-unavailable", f"{file} {what} while it was open: {MEND}", retry_after=30)


class SqliteFile:
    """The file, from its first connection to `close`; that connection is kept, so that the log stays the same."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._paths = [f"{file}{suffix}" for suffix in SUFFIXES]
        self._known: list[Identity] = []
        self._kept: sqlite3.Connection | None = None
        self._lock = threading.Lock()

    def engine(self, pool: type[Pool], busy_seconds: float = BUSY_SECONDS, **options: Any) -> Engine:
        """Connections in such a pool. Writes begin with BEGIN IMMEDIATE, and so wait before they have read."""
        made = create_engine("sqlite://", creator=lambda: self.connect(busy_seconds), poolclass=pool, **options)
        event.listen(made, "begin", _begin)
        return made

    def connect(self, busy_seconds: float) -> sqlite3.Connection:
        """Another connection; Moved where it would not be to the same file."""
        with self._lock:
            if self._kept is None:
                self._kept = _connected(self.file, BUSY_SECONDS)
                self._known = [_identity(path) for path in self._paths]
        self.check()
        return _connected(self.file, busy_seconds)

    def check(self) -> None:
        """Raises Moved where a file is no longer the one that is open."""
        for path, known in zip(self._paths, self._known, strict=False):
            found = _identity(path)
            if found != known:
                if path != self._paths[0]:
                    self._keep_what_the_log_holds()
                raise Moved(path, found)

    def close(self) -> None:
        """Close the connection that is kept; the others are closed by now."""
        with self._lock:
            if self._kept is not None:
                self._kept.close()
            self._kept, self._known = None, []

    def _keep_what_the_log_holds(self) -> None:
        """Bring what was committed from the log, which is open though it has no name, into the database itself."""
        with self._lock, suppress(sqlite3.Error):
            if self._kept is not None:
                self._kept.execute("PRAGMA wal_checkpoint(FULL)").fetchall()


def _connected(file: Path, busy_seconds: float) -> sqlite3.Connection:
    # The driver must not begin transactions by itself: it would begin them deferred, and after reads only.
    connection = sqlite3.connect(
        f"file:{quote(str(file))}", uri=True, timeout=busy_seconds, isolation_level=None, check_same_thread=False
    )
    try:
        [is_old] = connection.execute("PRAGMA page_count").fetchone()
        for statement in SESSION if is_old else (NEW_FILE, *SESSION):
            connection.execute(statement)
        # The first read opens the log and its index.
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection


def _begin(connection: Connection) -> None:
    options = connection.get_execution_options()
    if not options.get("offpolicy_plain", False):
        begin = "BEGIN IMMEDIATE" if options.get("offpolicy_write", False) else "BEGIN"
        driven(connection, begin, lambda cursor: cursor.execute(begin))


def _identity(path: str) -> Identity:
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino
