"""One SQLite file and the connections to it: commits are durable, and the file stays the one that is open.

SQLite goes on writing into a file that was deleted or replaced, and into a deleted write-ahead log: all of it is gone
with the process. A new connection would even begin another log beside the old one. So the files are compared before a
connection is made and after each commit, before anybody is told that something is stored.
"""

import sqlite3
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from sqlalchemy import Connection, Engine, Pool, create_engine, event

from offpolicy_monitor.errors import Unavailable
from offpolicy_monitor.store.failures import driven
from offpolicy_monitor.store.identity import Identity, identity

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
#: How a transaction that writes begins, so that it waits for others before it has read.
BEGIN_WRITING: Final = "BEGIN IMMEDIATE"
#: The database, its write-ahead log, and the index of that. They stay the same while any connection is open.
SUFFIXES: Final = ("", "-wal", "-shm")
MEND: Final = "stop the service, put the file right, start it again"


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
        self._moved = False
        self._kept: sqlite3.Connection | None = None
        self._lock = threading.Lock()

    def engine(self, pool: type[Pool], busy_seconds: float = BUSY_SECONDS, **options: Any) -> Engine:
        """Connections in such a pool."""
        made = create_engine("sqlite://", creator=lambda: self.connect(busy_seconds), poolclass=pool, **options)
        event.listen(made, "begin", _begun)
        return made

    def connect(self, busy_seconds: float) -> sqlite3.Connection:
        """Another connection; Moved where it would not be to the same file."""
        with self._lock:
            if self._kept is None:
                self._kept = _connected(self.file, BUSY_SECONDS)
                self._known = [identity(path) for path in self._paths]
        self.check()
        return _connected(self.file, busy_seconds)

    def check_if_moved(self) -> None:
        """Before a transaction: `check` where a file had moved at the last one, and has maybe been put back.

        Else nobody needs to look: into a file that has moved since then it would be committed, but `check` after it
        decides whether it is acknowledged, as of one that moves during the transaction.
        """
        if self._moved:
            self.check()

    def check(self) -> None:
        """Raises Moved where a file is no longer the one that is open."""
        self._moved = True
        for path, known in zip(self._paths, self._known, strict=False):
            found = identity(path)
            if found != known:
                if path != self._paths[0]:
                    self._keep_what_the_log_holds()
                raise Moved(path, found)
        self._moved = False

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


def _begun(connection: Connection) -> None:
    """SQLAlchemy begins a transaction, which may be the driver's that is there already."""
    driver: Any = connection.connection.driver_connection
    if not driver.in_transaction and not connection.get_execution_options().get("offpolicy_plain", False):
        driven(connection, "BEGIN")
