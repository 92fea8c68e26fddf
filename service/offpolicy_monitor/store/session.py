"""Engines and transactions: what a URL means, and how each database is made to keep its promises.

A commit is durable on both: SQLite in WAL with synchronous=FULL, PostgreSQL with synchronous_commit=on. Writes begin
with BEGIN IMMEDIATE on SQLite; reads see one snapshot and never hold a writer up. Knows nothing of the tables.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError

from offpolicy_monitor.errors import ConfigurationError
from offpolicy_monitor.store.failures import translated
from offpolicy_monitor.store.lock import make_folder

DRIVERS = {
    "sqlite": "sqlite",
    "sqlite+pysqlite": "sqlite",
    "postgres": "postgresql+psycopg",
    "postgresql": "postgresql+psycopg",
    "postgresql+psycopg": "postgresql+psycopg",
}
BUSY_SECONDS = 5
CONNECT_SECONDS = 5

SQLITE_SESSION = (
    f"PRAGMA busy_timeout = {BUSY_SECONDS * 1000}",
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    "PRAGMA foreign_keys = ON",
)
POSTGRES_READ: dict[str, Any] = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
POSTGRES_SESSION = (
    "SET synchronous_commit = on",
    f"SET lock_timeout = '{2 * BUSY_SECONDS}s'",
    "SET statement_timeout = '60s'",
    "SET idle_in_transaction_session_timeout = '60s'",
)


def parse_url(url: str) -> URL:
    """The URL with the driver this package uses; raises ConfigurationError for what it cannot use."""
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        raise ConfigurationError("the database URL is malformed; use sqlite:///FILE or postgresql://...") from error
    if parsed.drivername not in DRIVERS:
        raise ConfigurationError(f"database {parsed.drivername} is not supported; use one of {', '.join(DRIVERS)}")
    parsed = parsed.set(drivername=DRIVERS[parsed.drivername])
    if parsed.get_backend_name() == "postgresql" and find_spec("psycopg") is None:
        raise ConfigurationError("PostgreSQL needs psycopg: pip install 'offpolicy-monitor[postgres]'")
    return parsed


def sqlite_file(url: URL) -> Path | None:
    """The database file of a SQLite URL, None for PostgreSQL; a database in memory is refused."""
    if url.get_backend_name() != "sqlite":
        return None
    name = url.database or ""
    if name in ("", ":memory:") or name.startswith("file:"):
        raise ConfigurationError("SQLite needs a plain file, sqlite:///FILE: what is only in memory is not durable")
    return Path(name).expanduser().resolve()


class Database:
    """One engine, and the two kinds of transaction that the store knows; connects to nothing before the first."""

    def __init__(self, url: URL) -> None:
        path = self._file = sqlite_file(url)
        if path is None:
            self.engine = _postgres_engine(url)
            self._readers: Engine = self.engine.execution_options(**POSTGRES_READ)
        else:
            make_folder(path)
            self.engine = _sqlite_engine(url.set(database=str(path)))
            self._readers = self.engine
        self._writers = self.engine.execution_options(offpolicy_write=True)

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """One transaction that writes; commits at the end, rolls back on any error. Failures are translated."""
        with translated(self._file), self._writers.begin() as connection:
            yield connection

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """One transaction that only reads, all of it from one snapshot. Failures are translated."""
        with translated(self._file), self._readers.begin() as connection:
            yield connection

    def close(self) -> None:
        """Close every connection."""
        self.engine.dispose()


def _sqlite_engine(url: URL) -> Engine:
    engine = create_engine(url, connect_args={"timeout": BUSY_SECONDS}, pool_size=8, max_overflow=24)

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, _record: object) -> None:
        # The driver must not begin transactions by itself: it would begin them deferred, and after reads only.
        connection.isolation_level = None
        for statement in SQLITE_SESSION:
            connection.execute(statement)

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        write = connection.get_execution_options().get("offpolicy_write", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")

    return engine


def _postgres_engine(url: URL) -> Engine:
    engine = create_engine(
        url,
        connect_args={"connect_timeout": CONNECT_SECONDS, "application_name": "offpolicy-monitor"},
        isolation_level="READ COMMITTED",
        pool_pre_ping=True,
        pool_size=8,
        max_overflow=24,
    )

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, _record: object) -> None:
        connection.autocommit = True
        for statement in POSTGRES_SESSION:
            connection.execute(statement)
        connection.autocommit = False

    return engine
