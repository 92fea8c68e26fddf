"""However many runs there are, the watch asks in pieces, changes what changes and waits for no other run."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from offpolicy_monitor.server.judge import RulesJudge
from offpolicy_monitor.store import Store
from offpolicy_monitor.store.rows.alerts import EPISODE
from offpolicy_monitor.store.rows.held import HeldRun
from offpolicy_monitor.store.session import Database, parse_url
from offpolicy_monitor.store.write.judge import Judge
from sqlalchemy import Engine, event, text

from tests.fixtures.shards import make_record
from tests.fixtures.stores import Clock

#: As many parameters as a statement may have: some for each of a piece of 500 runs; and more runs than that.
MOST, RUNS = 1200, 1300
#: Runs with an open step: more than are exported.
OPEN = 110
DAY = 86_400.0


def add_runs(url: str, count: int, last_batch_at: float) -> None:
    database = Database(parse_url(url))
    statement = """
        WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :count)
        INSERT INTO runs (name, profile, labels, created_at, last_batch_at)
        SELECT 'run-' || i, 'dense_bf16', '{}', 1.0, :last FROM n"""
    with database.writing() as connection:
        connection.execute(text(statement), {"count": count, "last": last_batch_at})
    database.close()


@contextmanager
def largest_statement() -> Iterator[list[int]]:
    """The numbers of parameters of all statements meanwhile."""
    sizes = [0]

    def seen(_connection: Any, _cursor: Any, _statement: str, parameters: Any, _context: Any, many: bool) -> None:
        sizes.append(max(map(len, parameters)) if many else len(parameters))

    event.listen(Engine, "before_cursor_execute", seen)
    try:
        yield sizes
    finally:
        event.remove(Engine, "before_cursor_execute", seen)


def test_no_statement_has_a_parameter_for_every_run(
    open_store: Callable[..., Store], database_url: str, clock: Clock
) -> None:
    add_runs(database_url, RUNS, clock.now)
    store = open_store(RulesJudge())
    store.ingest([make_record(step, shards=2, run=f"run-{step + 1}") for step in range(OPEN)])
    clock.now += 10_000
    with largest_statement() as sizes:
        assert store.upkeep.watch(DAY) == RUNS
        assert store.upkeep.watch(DAY) == 0
        assert store.upkeep.sweep(clock.now, 600.0) == OPEN
        assert len(store.exported(100, 0.0)) == 100
        clock.now += DAY
        assert store.upkeep.watch(DAY) == RUNS
        assert store.upkeep.watch(DAY) == 0
    assert max(sizes) <= MOST


def test_the_last_of_many_runs_is_watched_too(
    open_store: Callable[..., Store], database_url: str, clock: Clock
) -> None:
    class Silent(Judge):
        """Tells of one run alone."""

        def timing(
            self,
            run: HeldRun,
            step_seconds: float | None,
            silence: float,
            open_for: float | None,
            before: Sequence[Any],
        ) -> list[Mapping[str, Any]]:
            alert: dict[str, Any] = dict.fromkeys(EPISODE)
            alert |= {"alert": "RunSilent", "severity": "warning", "state": "active", "breach_steps": 1}
            return [alert] if run.name == f"run-{RUNS}" else []

    add_runs(database_url, RUNS, clock.now)
    store = open_store(Silent())
    clock.now += 10
    with largest_statement() as sizes:
        assert store.upkeep.watch(DAY) == 1
    assert [row["run"] for row in store.alerts().rows] == [f"run-{RUNS}"]
    assert max(sizes) <= MOST


def test_the_watch_holds_only_runs_that_change(postgres_url: str, clock: Clock) -> None:
    add_runs(postgres_url, 3, clock.now)
    store = Store.open(postgres_url, clock, RulesJudge())
    database = Database(parse_url(postgres_url))
    with database.writing() as connection:
        connection.execute(text("UPDATE runs SET last_batch_at = last_batch_at + 5000 WHERE name <> 'run-2'"))
    clock.now += 6000
    with database.writing() as connection:
        connection.execute(text("SELECT 1 FROM runs WHERE name <> 'run-2' FOR UPDATE"))
        assert store.upkeep.watch(DAY) == 1
    assert {row["run"] for row in store.alerts().rows} == {"run-2"}
    database.close()
    store.close()


@pytest.mark.parametrize("finished", [True, False])
def test_a_run_that_ends_while_it_is_looked_at_is_left_alone(store: Store, clock: Clock, finished: bool) -> None:
    store.ingest([make_record()])
    if finished:
        store.update_run("r1", finished=True)
    clock.now += 1e5
    assert store.upkeep.watch(DAY) == 0
