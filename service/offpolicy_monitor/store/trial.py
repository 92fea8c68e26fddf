"""What storing a shard needs of the database, done so that nothing remains of it; and how the real writes went.

The trial holds every table as a write does, and is committed: a disk that is full, failing or read-only, a lock that
somebody else has, a damaged or deleted file are found before the next shard finds them.
"""

import threading
import time
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final

from sqlalchemy import Connection, Select, false, func, select, text, update

from offpolicy_monitor.errors import Unavailable
from offpolicy_monitor.store.rows.tables import metadata

#: Seconds for which a write that went well speaks for the next one, and one that failed against it.
PROVEN, DOUBTED = 1.0, 10.0
#: PRAGMA user_version is a signed number of 32 bits; nothing else uses it.
LARGEST: Final = (1 << 31) - 1


def write(connection: Connection) -> None:
    """In the caller's transaction; raises what a shard would meet."""
    if connection.dialect.name == "sqlite":
        _write_sqlite(connection)
    else:
        _write_postgres(connection)


def _write_sqlite(connection: Connection) -> None:
    """Read the newest row of every table, and write a page: the one that counts these trials."""
    for newest in _newest_rows():
        connection.execute(newest).all()
    count = connection.exec_driver_sql("PRAGMA user_version").scalar_one()
    connection.exec_driver_sql(f"PRAGMA user_version = {(count + 1) % LARGEST}")


@cache
def _newest_rows() -> Sequence[Select[Any]]:
    """What reads the newest row of each table, made once for all trials."""
    tables = metadata.sorted_tables
    return [select(table).order_by(*(column.desc() for column in table.primary_key)).limit(1) for table in tables]


def _write_postgres(connection: Connection) -> None:
    """Update no row of every table, and put a record into the write-ahead log, so that the commit is a real one."""
    connection.execute(text("SET LOCAL lock_timeout = '800ms'"))
    for table in metadata.sorted_tables:
        column = next(iter(table.primary_key))
        connection.execute(update(table).where(false()).values({column: column}))
    connection.execute(select(func.pg_logical_emit_message(True, "offpolicy-monitor", "trial")))


class Outcomes:
    """When writes of this process went well and when not."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._succeeded: float | None = None
        self._failed: tuple[float, Unavailable] | None = None

    def succeeded(self) -> None:
        """A shard was committed: whatever failed before is over. A transaction that wrote nothing shows nothing."""
        with self._lock:
            self._succeeded, self._failed = self._clock(), None

    def failed(self, error: Unavailable) -> None:
        """A transaction was not committed, or nobody knows."""
        with self._lock:
            self._failed = self._clock(), error

    def prove(self) -> bool:
        """Whether a write went well just now, and none has failed since."""
        with self._lock:
            recent = self._succeeded is not None and self._clock() - self._succeeded < PROVEN
            return recent and self._failed is None

    def check(self) -> None:
        """Raises what the last write failed with, if that is not long ago."""
        with self._lock:
            failed = self._failed
        if failed is not None and self._clock() - failed[0] < DOUBTED:
            raise failed[1]
