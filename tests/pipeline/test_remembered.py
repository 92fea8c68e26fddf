"""What a process remembers tells a shard that is new from one that the store is to be asked about."""

import pytest
from offpolicy_monitor.pipeline.remembered import Remembered, Rows
from offpolicy_monitor.store import ShardKey

DEFAULT = Rows.of(None)


def key(step: int, shard: int = 0, attempt: int = 0, run: str = "r", minibatch: int = 0) -> ShardKey:
    return ShardKey(run, attempt, step, minibatch, shard)


def remembering(most: int = 1000) -> Remembered:
    """One that asked about step 4 of r, and stored two shards of step 5."""
    remembered = Remembered(most)
    remembered.asked(key(4), DEFAULT)
    for shard in (0, 1):
        remembered.stored(key(5, shard, attempt=1), 4)
    return remembered


NEW = {
    "a later step": (key(6), 1),
    "another shard of a step": (key(5, 2, attempt=1), 4),
    "another minibatch": (key(5, 0, attempt=1, minibatch=1), 4),
}
UNCLEAR = {
    "a shard that is stored": (key(5, 1, attempt=1), 4),
    "another attempt": (key(5, 2, attempt=0), 4),
    "a later attempt": (key(5, 2, attempt=2), 4),
    "another number of shards": (key(5, 2, attempt=1), 8),
    "the step that was asked about": (key(4), 1),
    "an earlier step": (key(3), 1),
    "another run": (key(6, run="s"), 1),
}


@pytest.mark.parametrize("name", NEW)
def test_new_is(name: str) -> None:
    assert remembering().rows(*NEW[name]) is DEFAULT


@pytest.mark.parametrize("name", UNCLEAR)
def test_the_store_is_asked_about(name: str) -> None:
    assert remembering().rows(*UNCLEAR[name]) is None


def test_the_rows_are_those_that_the_store_said_last() -> None:
    remembered = remembering()
    none = Rows.of([])
    remembered.asked(key(4), none)
    assert remembered.rows(key(6), 1) is none


def test_of_a_run_that_is_forgotten_the_store_is_asked() -> None:
    remembered = remembering()
    remembered.forget("r")
    remembered.forget("r")
    assert remembered.rows(key(6), 1) is None


def test_a_higher_attempt_takes_the_place_of_the_one_before() -> None:
    remembered = remembering()
    remembered.stored(key(5, 1, attempt=2), 4)
    assert remembered.rows(key(5, 0, attempt=2), 4) is DEFAULT
    assert remembered.rows(key(5, 1, attempt=2), 4) is None
    assert remembered.rows(key(5, 2, attempt=1), 4) is None


def test_what_is_remembered_is_bounded_and_what_is_forgotten_is_asked_about() -> None:
    remembered = remembering(most=10)
    for step in range(6, 40):
        remembered.stored(key(step), 1)
    assert [remembered.rows(key(step), 1) for step in range(5, 40)] == [None] * 35
    assert remembered.rows(key(40), 1) is DEFAULT
    remembered.asked(key(0, run="s"), DEFAULT)
    for step in range(1, 12):
        remembered.stored(key(step, run="s"), 1)
    assert remembered.rows(key(40), 1) is None
    assert remembered.rows(key(12, run="s"), 1) is DEFAULT


def test_runs_of_which_nothing_was_stored_are_bounded_too() -> None:
    remembered = remembering(most=10)
    for number in range(100):
        remembered.asked(key(4, run=f"r{number}"), DEFAULT)
    known = [number for number in range(100) if remembered.rows(key(5, run=f"r{number}"), 1) is DEFAULT]
    assert known == list(range(90, 100))
