"""What is known of a shard before it is measured is what storing it would answer, and asking changes nothing."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from offpolicy_monitor.errors import Refusal, Unavailable
from offpolicy_monitor.store import NewRuns, ShardRecord, Store
from offpolicy_monitor.store.write.known import Known
from offpolicy_monitor.summary.step import StepSummary

from tests.fixtures.shards import make_record
from tests.fixtures.stores import Clock


def claim(record: ShardRecord) -> ShardRecord:
    return replace(record, summary=StepSummary.empty())


def test_nothing_is_known_of_a_run_that_is_not_there(store: Store) -> None:
    assert store.known("r1", claim(make_record())) == Known(None)
    assert store.known("r1") == Known(None)
    assert store.runs().rows == []


def test_a_run_may_begin_when_one_of_as_many_began_an_hour_ago(open_store: Callable[..., Store], clock: Clock) -> None:
    store = open_store(new_runs=NewRuns(2, "THE_SETTING"))
    for run, at in (("r1", 1000.0), ("r2", 1600.0)):
        clock.now = at
        store.known(run, claim(make_record(run=run)))
        store.ingest([make_record(run=run)])
    clock.now = 2000.0
    with pytest.raises(Unavailable) as refused:
        store.known("r3", claim(make_record(run="r3")))
    assert (refused.value.status, refused.value.kind) == (429, "too-many-new-runs")
    assert refused.value.retry_after == 2601 and "THE_SETTING" in refused.value.detail
    assert store.known("r2", claim(make_record(run="r2", step=9))) == Known(None)
    clock.now = 4601.0
    assert store.known("r3", claim(make_record(run="r3"))) == Known(None)


def test_the_chosen_rows_are_known_with_and_without_a_shard(store: Store) -> None:
    store.ingest([make_record()])
    assert store.known("r1", claim(make_record(step=1))) == Known(None)
    store.update_run("r1", methods=[{"name": "mine"}])
    assert store.known("r1", claim(make_record(step=1))) == store.known("r1") == Known([{"name": "mine"}])


def test_a_stored_shard_is_known_by_its_content(store: Store) -> None:
    record = make_record(shards=2)
    store.ingest([record])
    assert store.known("r1", claim(record)).answer == record.summary
    assert store.known("r1", claim(make_record(shard=1, shards=2))).answer is None


@pytest.mark.parametrize(
    "record",
    [
        make_record(step=3, shards=2, attempt=2, content=1),
        make_record(step=3, shards=3, attempt=2, shard=1),
        make_record(step=3, shards=2, attempt=1),
    ],
    ids=["other content", "another number of shards", "an older attempt"],
)
def test_what_would_be_refused_is_known_as_the_same_refusal(store: Store, record: ShardRecord) -> None:
    store.ingest([make_record(step=3, shards=2, attempt=2)])
    known, [decided] = store.known("r1", claim(record)).answer, store.ingest([record])
    assert isinstance(known, Refusal) and isinstance(decided, Refusal)
    assert (known.status, known.kind, known.errors) == (decided.status, decided.kind, decided.errors)


def test_asking_about_a_newer_attempt_supersedes_nothing(store: Store) -> None:
    store.ingest([make_record(step=3)])
    assert store.known("r1", claim(make_record(step=3, attempt=1))) == Known(None)
    assert store.step("r1", 3)["attempt"] == 0
