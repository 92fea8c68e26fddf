"""A clock that is set: what was received while it was ahead neither keeps a run live nor a step open."""

from collections.abc import Callable
from datetime import datetime

import pytest
from offpolicy_monitor.server.judge import RulesJudge
from offpolicy_monitor.store import Store
from offpolicy_monitor.store.write.clocks import PORTION

from tests.fixtures.shards import make_record
from tests.fixtures.stores import Clock

Open = Callable[..., Store]
DAY = 86_400.0


@pytest.fixture
def watched(open_store: Open) -> Store:
    """A store whose runs are judged."""
    return open_store(judge=RulesJudge())


def receive(store: Store, clock: Clock, *columns: tuple[int, int, int], minibatches: int | None = 1) -> None:
    """Shards (step, shard, of how many), received now."""
    store.ingest([make_record(*column, received_at=clock.now, minibatches=minibatches) for column in columns])


def last_batch(store: Store) -> float:
    """What /metrics says."""
    return store.exported(9, 0.0)[0].last_batch


def test_one_shard_received_while_the_clock_was_ahead_does_not_keep_its_run_live(watched: Store, clock: Clock) -> None:
    for step in range(5):
        clock.now = 1000.0 + 10 * step
        receive(watched, clock, (step, 0, 1))
    clock.now += DAY
    receive(watched, clock, (5, 0, 1))
    clock.now = 1060.0
    said = watched.run("r1")
    assert datetime.fromisoformat(said["last_batch_at"]).timestamp() == last_batch(watched) == 1060.0
    watched.upkeep.watch(expiry=DAY)
    clock.now = 1659.0
    watched.upkeep.watch(expiry=DAY)
    assert (watched.run("r1")["state"], last_batch(watched), told(watched)) == ("live", 1060.0, set())
    clock.now = 1661.0
    watched.upkeep.watch(expiry=DAY)
    assert (watched.run("r1")["state"], last_batch(watched), told(watched)) == ("silent", 1060.0, {"RunSilent"})


def told(store: Store) -> set[str]:
    """Rules on the clock whose alerts are active."""
    rows = store.alerts(states=("active",)).rows
    return {row["alert"] for row in rows if row["alert"] in ("RunSilent", "IncompleteStep")}


def test_the_time_of_the_last_batch_follows_the_clock_back(watched: Store, clock: Clock) -> None:
    clock.now += DAY
    receive(watched, clock, (0, 0, 1))
    clock.now = 1010.0
    receive(watched, clock, (1, 0, 1))
    clock.now = 1050.0
    assert last_batch(watched) == 1010.0


def test_a_clock_set_back_by_an_hour_leaves_no_step_open_for_that_hour(watched: Store, clock: Clock) -> None:
    clock.now = 10_000.0
    receive(watched, clock, (0, 0, 1), (1, 0, 2))
    clock.now = 6_400.0
    assert watched.upkeep.sweep(clock.now, timeout=600.0) == 0
    assert watched.exported(9, 0.0)[0].open_since == 6_400.0
    assert watched.upkeep.sweep(6_999.0, timeout=600.0) == 0
    assert watched.upkeep.sweep(7_000.0, timeout=600.0) == 1
    assert watched.states("r1")[0] == 1


def test_a_clock_set_back_by_an_hour_leaves_no_training_step_waiting_for_that_hour(
    watched: Store, clock: Clock
) -> None:
    clock.now = 10_000.0
    receive(watched, clock, (0, 0, 1), minibatches=2)
    watched.upkeep.sweep(6_400.0, timeout=600.0)
    watched.upkeep.sweep(6_999.0, timeout=600.0)
    assert watched.states("r1")[0] is None
    watched.upkeep.sweep(7_000.0, timeout=600.0)
    assert watched.states("r1")[0] == 0


def test_many_times_that_lie_ahead_are_all_brought_back(watched: Store, clock: Clock) -> None:
    clock.now = 10_000.0
    several = PORTION + 10
    receive(watched, clock, *((step, 0, 2) for step in range(several)))
    watched.upkeep.sweep(6_400.0, timeout=600.0)
    assert watched.upkeep.sweep(7_000.0, timeout=600.0) == several
