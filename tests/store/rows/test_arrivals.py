"""How gradient steps have come, in the order of steps, whether they count or not; what was given up is not told."""

import pytest
from offpolicy_monitor.errors import Refusal
from offpolicy_monitor.store import Store

from tests.fixtures.shards import make_record


def test_the_newest_gradient_steps_come_ascending_with_their_shards_and_versions(store: Store) -> None:
    store.ingest(
        [make_record(step, minibatch=minibatch, policy_version=step) for step in (1, 0) for minibatch in (0, 1)]
    )
    store.ingest([make_record(2, shard=shard, shards=4) for shard in (3, 1)])
    found = [tuple(row) for row in store.arrivals("r1", 10)]
    assert found == [(0, 0, 1, 1, 0), (0, 1, 1, 1, 0), (1, 0, 1, 1, 1), (1, 1, 1, 1, 1), (2, 0, 4, 2, None)]
    assert [tuple(row) for row in store.arrivals("r1", 2)] == found[-2:]


def test_steps_that_another_attempt_replaced_are_not_told(store: Store) -> None:
    store.ingest([make_record(step) for step in (0, 1)])
    store.ingest([make_record(1, attempt=1, policy_version=7)])
    assert [tuple(row) for row in store.arrivals("r1", 10)] == [(0, 0, 1, 1, None), (1, 0, 1, 1, 7)]


def test_of_an_unknown_run_nothing_has_come(store: Store) -> None:
    with pytest.raises(Refusal, match="nobody"):
        store.arrivals("nobody", 10)
