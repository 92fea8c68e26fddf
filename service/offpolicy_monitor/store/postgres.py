"""Connections to PostgreSQL: commits are durable, and nothing waits for a server that does not answer.

Three bounds, each for what the others cannot see: the server ends statements and waits for locks; the kernel ends
connections whose packets nobody acknowledges; and `patience` ends the wait for a server that is there but stands still.
"""

from collections.abc import Callable, Generator, Mapping
from typing import Any, Final

import psycopg
from sqlalchemy import URL, Engine, create_engine, event

from offpolicy_monitor.store.patience import OutOfPatience, current, patiently

APPLICATION: Final = "offpolicy-monitor"
CONNECT_SECONDS: Final = 4
#: Milliseconds after which the kernel gives up a connection whose packets are not acknowledged.
UNACKNOWLEDGED: Final = 10_000
#: The keywords of libpq; what the URL says of them counts.
CONNECTION: Final[Mapping[str, int | str]] = {
    "application_name": APPLICATION,
    "connect_timeout": CONNECT_SECONDS,
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 2,
    "tcp_user_timeout": UNACKNOWLEDGED,
}
#: A statement that nobody waits for any more ends by itself, and lets go of what it holds.
BOUNDED: Final = ("SET lock_timeout = '3s'", "SET statement_timeout = '20s'")
UNBOUNDED: Final = ("SET statement_timeout = 0",)
#: Nothing here runs for long: compiling statements that are thought to (jit) took nine tenths of a scrape's time.
SESSION: Final = (
    "SET synchronous_commit = on",
    "SET idle_in_transaction_session_timeout = '60s'",
    "SET jit = off",
)


class PatientConnection(psycopg.Connection[Any]):
    """A connection whose waits end when the patience of the waiting thread does; it is closed then.

    `binary`: values come as the server has them, since as text each byte of a summary is two digits. What describes the
    schema is made for text alone.
    """

    binary = False

    def wait(self, gen: Generator[Any, Any, Any], *options: Any, **named: Any) -> Any:
        """As that of its base."""
        limit = current()
        if limit is None:
            return super().wait(gen, *options, **named)
        try:
            return super().wait(patiently(gen, limit), *options, **named)
        except OutOfPatience as error:
            # The server may answer yet: nothing that is said on this connection afterwards could be understood.
            self.pgconn.finish()
            raise psycopg.OperationalError(str(error)) from error

    def cursor(self, *arguments: Any, **named: Any) -> Any:
        """As that of its base."""
        return super().cursor(*arguments, **{"binary": self.binary, **named})


def connect(*arguments: Any, **keywords: Any) -> PatientConnection:
    """A connection, made within the patience of this thread, a second or two more."""
    limit = current()
    keywords = {**CONNECTION, **keywords}
    if limit is None:
        return PatientConnection.connect(*arguments, **keywords)
    try:
        limit.check()
    except OutOfPatience as error:
        raise psycopg.OperationalError(str(error)) from error
    keywords["connect_timeout"] = max(1, min(int(keywords["connect_timeout"]), int(limit.left)))
    with limit.waiting():
        return PatientConnection.connect(*arguments, **keywords)


def make_engine(url: URL, pool: Mapping[str, Any], lock_seconds: float | None = None) -> Engine:
    """Connections in a pool, bounded as requests need it; with `lock_seconds` waits for locks alone are, by that."""
    engine = create_engine(url, isolation_level="READ COMMITTED", pool_pre_ping=True, **pool)
    waits = BOUNDED if lock_seconds is None else (*UNBOUNDED, f"SET lock_timeout = '{round(1e3 * lock_seconds)}ms'")
    session = "; ".join((*SESSION, *waits))
    event.listen(engine, "do_connect", lambda dialect, record, arguments, keywords: connect(*arguments, **keywords))
    event.listen(engine, "connect", _prepares(session, binary=lock_seconds is None))
    return engine


def _prepares(session: str, binary: bool) -> Callable[[Any, object], None]:
    def prepare(connection: Any, _record: object) -> None:
        connection.autocommit = True
        connection.execute(session)
        connection.autocommit = False
        connection.binary = binary

    return prepare
