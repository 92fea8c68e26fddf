"""A PostgreSQL that is gone, locked, read-only or stands still, under load: 503, then as before, and nothing lost."""

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial

from sqlalchemy import Engine, NullPool, create_engine, text

from tests.chaos.scenario import POSTGRES, Scenario
from tests.chaos.stage import Busy, Stage

#: Seconds for which a fault lasts: longer than the service waits for its database.
LASTS = 8.0
#: Seconds in which every request is answered meanwhile, on a machine that is not busy with others.
ANSWERED_WITHIN = 15.0
Fault = Callable[[Stage], AbstractContextManager[None]]

OTHERS = "datname = current_database() AND pid <> pg_backend_pid()"
END_OTHERS = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {OTHERS}"
NEWEST = f"SELECT pid FROM pg_stat_activity WHERE {OTHERS} ORDER BY query_start DESC NULLS LAST LIMIT 1"


def under(fault: Fault, stage: Stage, environment: Mapping[str, str] | None = None) -> None:
    """The fault for a while under load: it is told, every request is answered in time, memory stays flat."""
    stage.start(environment=environment)
    with stage.load(), stage.flat():
        for _ in stage.trials():
            busy = Busy()
            with fault(stage):
                time.sleep(LASTS)
                stage.unready(saying='"store":false')
                stage.alive()
            with stage.recovering():
                pass
            stage.answered_within(ANSWERED_WITHIN * busy.times())
    stage.answered({200, 503})
    stage.promise(stage.ledger.answers[503] > 0, "nobody was told 503")


def ended(stage: Stage) -> None:
    """Every session is ended, again and again."""
    stage.start()
    with stage.load(), stage.flat():
        for _ in stage.trials():
            time.sleep(0.5)
            with stage.recovering():
                execute(stage, END_OTHERS)
    stage.answered({200, 503})


def engine(stage: Stage) -> Engine:
    return create_engine(stage.url, poolclass=NullPool, isolation_level="AUTOCOMMIT")


def execute(stage: Stage, statement: str) -> None:
    with engine(stage).connect() as connection:
        connection.execute(text(statement))


@contextmanager
def stopped(stage: Stage) -> Iterator[None]:
    """The server is stopped."""
    stage.cluster.end()
    try:
        yield
    finally:
        stage.cluster.start()


@contextmanager
def crashed(stage: Stage) -> Iterator[None]:
    """Every process of the server is killed at once."""
    stage.cluster.kill()
    try:
        yield
    finally:
        stage.cluster.start()


@contextmanager
def frozen(stage: Stage) -> Iterator[None]:
    """The server stands still."""
    with stage.cluster.frozen():
        yield


@contextmanager
def locked(stage: Stage) -> Iterator[None]:
    """Another session holds the tables for itself."""
    with create_engine(stage.url, poolclass=NullPool).connect() as connection:
        connection.execute(text("LOCK TABLE runs, steps, shards IN ACCESS EXCLUSIVE MODE"))
        yield


@contextmanager
def read_only(stage: Stage) -> Iterator[None]:
    """The database takes no writes."""
    name = stage.url.rpartition("/")[2].partition("?")[0]
    stage.cluster.administer(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    execute(stage, END_OTHERS)
    try:
        yield
    finally:
        stage.cluster.administer(f"ALTER DATABASE {name} RESET default_transaction_read_only")
        execute(stage, END_OTHERS)


def one_frozen(stage: Stage) -> None:
    """The session that was asked last stands still, alone: the others go on, or wait for what it holds."""
    stage.start()
    with stage.load(), stage.flat():
        for _ in stage.trials():
            with engine(stage).connect() as connection:
                process = int(connection.execute(text(NEWEST)).scalar_one())
            os.kill(process, signal.SIGSTOP)
            try:
                time.sleep(LASTS)
            finally:
                os.kill(process, signal.SIGCONT)
            with stage.recovering():
                pass
    stage.answered({200, 503})


def scenario(name: str, fault: Fault, full: int, quick: int = 1) -> Scenario:
    return Scenario(name, partial(under, fault), (POSTGRES,), full, quick)


SCENARIOS = (
    scenario("server stopped and started", stopped, 3),
    scenario("server crashed", crashed, 3),
    scenario("server frozen", frozen, 3),
    scenario("tables locked", locked, 3),
    scenario("database read-only", read_only, 2),
    Scenario("sessions ended", ended, (POSTGRES,), full=20, quick=3),
    Scenario("one session frozen", one_frozen, (POSTGRES,), full=4),
)
