"""Engines and transactions: what a URL means, and how each database is made to keep its promises.

A commit is durable on both: SQLite in WAL with synchronous=FULL, PostgreSQL with synchronous_commit=on. Reads see one
snapshot and never hold a writer up. Every wait has an end. Knows nothing of the tables.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, NullPool, QueuePool, event, make_url
from sqlalchemy.exc import ArgumentError

from offpolicy_monitor.errors import ConfigurationError
from offpolicy_monitor.store.failures import driven, translated, try_room
from offpolicy_monitor.store.lock import WriterLock, make_folder
from offpolicy_monitor.store.patience import Patience
from offpolicy_monitor.store.sqlite import BEGIN_WRITING, BUSY_SECONDS, SqliteFile

DRIVERS = {
    "sqlite": "sqlite",
    "sqlite+pysqlite": "sqlite",
    "postgres": "postgresql+psycopg",
    "postgresql": "postgresql+psycopg",
    "postgresql+psycopg": "postgresql+psycopg",
}
#: Longest waits for the database of one transaction, in seconds, and for a free connection.
READ_SECONDS = 4.0
WRITE_SECONDS = 6.0
TRY_SECONDS = 1.0
#: Longest wait for a lock that others hold, of work that takes as long as it needs once it has begun.
LOCK_SECONDS = 10.0
POOL_SECONDS = 2

POSTGRES_READ: dict[str, Any] = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
#: Connections for those that read, and for the few that write: a crowd of readers must not keep a shard from its own.
READERS: dict[str, Any] = {"pool_size": 8, "max_overflow": 24, "pool_timeout": POOL_SECONDS}
WRITERS: dict[str, Any] = {"pool_size": 2, "max_overflow": 6, "pool_timeout": POOL_SECONDS}


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


class Writers:
    """Transactions that write, on connections of one engine; `keep`: the last one is kept for the next transaction.

    `begins` is the statement by which the driver begins them, None where SQLAlchemy does, which takes twice as long.
    What SQLAlchemy runs is in the driver's transaction too.
    """

    def __init__(self, engine: Engine, begins: str | None, keep: bool) -> None:
        self._engine, self._begins, self._keep = engine, begins, keep
        self._kept: list[Connection] = []

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Committed at the end, rolled back on any error."""
        connection, kept = self._take(), False
        try:
            if self._begins is None:
                connection.begin()
            else:
                driven(connection, self._begins)
            yield connection
            if connection.in_transaction():
                connection.commit()  # SQLAlchemy has run a statement, and must know that its transaction is over
            else:
                driven(connection, "COMMIT")
            kept = self._keep and not self._kept
        finally:
            if kept:
                self._kept.append(connection)
            else:
                connection.close()

    def close(self) -> None:
        """Give back what is kept."""
        while self._kept:
            self._kept.pop().close()

    def _take(self) -> Connection:
        try:
            return self._kept.pop()
        except IndexError:
            return self._engine.connect()


class Database:
    """Engines for the kinds of transaction that the store knows; connects to nothing before the first.

    `bounded`: no transaction waits for the server longer than its patience, which is what requests need. Migrations
    wait for as long as it takes, but for locks of others no longer than `lock_seconds`.
    """

    def __init__(self, url: URL, bounded: bool = True, lock_seconds: float = LOCK_SECONDS) -> None:
        self.bounded = bounded
        path = sqlite_file(url)
        self.file = None if path is None else SqliteFile(path)
        self.engine: Engine
        self._readers: Engine
        if self.file is None:
            from offpolicy_monitor.store import postgres  # of an extra that SQLite does without

            locks = None if bounded else lock_seconds
            self._readers = postgres.make_engine(url, READERS, locks).execution_options(**POSTGRES_READ)
            self.engine = self._trying = postgres.make_engine(url, WRITERS, locks)
        else:
            make_folder(self.file.file)
            busy_seconds = BUSY_SECONDS if bounded else lock_seconds
            self.engine = self._readers = self.file.engine(QueuePool, busy_seconds, **READERS)
            self._trying = self.file.engine(NullPool, TRY_SECONDS)
        self._closed = False
        for engine in {self.engine, self._readers, self._trying}:
            event.listen(engine, "checkin", self._given_back)
        begins = None if self.file is None else BEGIN_WRITING
        # A server may drop a connection that nobody uses, which the pool finds out; a file does not.
        self._writers = Writers(self.engine, begins, keep=self.file is not None)
        self._triers = Writers(self._trying, begins, keep=False)

    def writing(self, seconds: float = WRITE_SECONDS) -> AbstractContextManager[Connection]:
        """One transaction that writes; commits at the end, rolls back on any error. Failures are translated.

        Raises Unavailable as well where the server was waited for longer than `seconds`; whether it has committed is
        then not known.
        """
        return self._committed(self._writers, seconds)

    @contextmanager
    def trying(self) -> Iterator[Connection]:
        """As `writing`, for a trial that must not take long.

        On SQLite by a connection that remembers nothing of the file, and only if the disk has room for more.
        """
        self._try_disk()
        with self._committed(self._triers, TRY_SECONDS) as connection:
            yield connection

    @contextmanager
    def reading(self, seconds: float = READ_SECONDS) -> Iterator[Connection]:
        """One transaction that only reads, all of it from one snapshot. Failures are translated."""
        with self._translated(), self._patience(seconds), self._readers.begin() as connection:
            yield connection

    @contextmanager
    def plain(self) -> Iterator[Connection]:
        """A connection without a transaction, for what cannot be in one and takes long: not where waits are bounded."""
        assert not self.bounded
        engine = self.engine.execution_options(isolation_level="AUTOCOMMIT", offpolicy_plain=True)
        with self._translated(), engine.connect() as connection:
            yield connection

    def _given_back(self, connection: Any, record: Any) -> None:
        """A connection that a thread used while the others were closed is closed when it comes back."""
        if self._closed and connection is not None:
            connection.close()

    def close(self) -> None:
        """Close every connection; one that a thread uses just now once it has."""
        self._closed = True
        self._writers.close()
        for engine in (self.engine, self._readers, self._trying):
            engine.dispose()
        if self.file is not None:
            self.file.close()

    def _translated(self) -> AbstractContextManager[None]:
        return translated(None if self.file is None else self.file.file)

    def _patience(self, seconds: float) -> AbstractContextManager[object]:
        return Patience(seconds) if self.bounded else nullcontext()

    def _try_disk(self) -> None:
        # Who may not make files in the folder may write the database all the same, once its log is there.
        if self.file is not None:
            with self._translated(), suppress(PermissionError):
                try_room(self.file.file.parent)

    @contextmanager
    def _committed(self, writers: Writers, seconds: float) -> Iterator[Connection]:
        with self._translated(), self._patience(seconds):
            if self.file is not None:
                self.file.check_if_moved()
            with writers.transaction() as connection:
                yield connection
            # Committed, but into a file that is found again?
            if self.file is not None:
                self.file.check()


@contextmanager
def unshared(url: str, lock_seconds: float = LOCK_SECONDS) -> Iterator[Database]:
    """The database for work that may take as long as it needs, a SQLite file with nobody else writing it.

    Raises ConfigurationError where another process writes the SQLite file, and where there is nothing in one that was
    there before: it has lost what it held.
    """
    parsed = parse_url(url)
    path = sqlite_file(parsed)
    with nullcontext() if path is None else WriterLock(path) as lock:
        if path is not None and lock is not None and not lock.made_file and path.stat().st_size == 0:
            raise ConfigurationError(
                f"{path} is empty, and no database is: restore a backup after removing it, or remove it to begin anew"
            )
        with closing(Database(parsed, bounded=False, lock_seconds=lock_seconds)) as database:
            yield database
