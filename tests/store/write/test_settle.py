"""Old steps take little room: figures stay, summaries are merged into blocks, and nothing shown becomes wrong."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from offpolicy_monitor.errors import Refusal
from offpolicy_monitor.store import Known, ShardRecord, Store
from offpolicy_monitor.store.rows.tables import blocks, shards, steps
from offpolicy_monitor.store.session import Database, parse_url
from offpolicy_monitor.store.write import settle
from offpolicy_monitor.store.write.settle import KEPT
from offpolicy_monitor.summary import stored
from offpolicy_monitor.summary.arrays import Arrays
from offpolicy_monitor.summary.merge import merged
from offpolicy_monitor.summary.step import StepSummary, merge_all
from sqlalchemy import func, select

from tests.fixtures.shards import ingest, make_record
from tests.fixtures.stores import Clock

DAY = 86_400.0


def sizes(url: str) -> tuple[int, int, int]:
    """Shards with a summary, steps with one, blocks."""
    database = Database(parse_url(url))
    with database.reading() as connection:
        found = (
            connection.execute(select(func.count()).select_from(table).where(condition)).scalar_one()
            for table, condition in (
                (shards, func.length(shards.c.summary) > 0),
                (steps, steps.c.summary.is_not(None)),
                (blocks, blocks.c.id > 0),
            )
        )
        first, second, third = found
    database.close()
    return first, second, third


def same(left: StepSummary, right: StepSummary) -> bool:
    return stored.to_bytes(left) == stored.to_bytes(right)


def test_the_one_shard_of_a_step_is_not_stored_twice(store: Store, database_url: str) -> None:
    record = make_record()
    ingest(store, record)
    assert sizes(database_url) == (0, 1, 0)
    [receipt] = ingest(store, record)
    assert receipt.duplicate and same(receipt.summary, record.summary)
    assert same(store.summary("r1")[2], record.summary)


def test_a_settled_step_keeps_its_sum_and_recognises_its_shards(store: Store, database_url: str, clock: Clock) -> None:
    records = [make_record(shard=shard, shards=3) for shard in range(3)]
    ingest(store, *records)
    before = store.step("r1", 0)
    clock.now += DAY
    assert store.upkeep.tidy(DAY, 10) == 0
    clock.now += 1
    assert store.upkeep.tidy(DAY, 10) == 1
    assert sizes(database_url) == (0, 1, 0)
    assert store.step("r1", 0) == before
    assert same(store.summary("r1")[2], merge_all(record.summary for record in records))
    [again] = ingest(store, records[1])
    assert again.duplicate and same(again.summary, records[1].summary)
    [conflict] = store.ingest([make_record(shard=1, shards=3, content=9)])
    assert isinstance(conflict, Refusal) and conflict.kind == "shard-conflict"


def test_a_duplicate_of_a_settled_step_is_measured_to_be_answered(store: Store, clock: Clock) -> None:
    records = [make_record(shard=shard, shards=2) for shard in range(2)]
    ingest(store, *records)
    known = store.known("r1", records[0])
    assert isinstance(known.answer, StepSummary)
    clock.now += DAY + 1
    store.upkeep.tidy(DAY, 10)
    assert store.known("r1", records[0]) == Known(None, None)


def test_a_shard_that_comes_after_its_step_was_settled_is_refused(store: Store, clock: Clock) -> None:
    ingest(store, make_record(shard=0, shards=3))
    store.upkeep.sweep(1e9, 600.0)
    clock.now += DAY + 1
    store.upkeep.tidy(DAY, 10)
    [refusal] = store.ingest([make_record(shard=1, shards=3)])
    assert isinstance(refusal, Refusal)
    assert (refusal.status, refusal.kind) == (409, "step-settled")
    assert "OFFPOLICY_SETTLE_AFTER" in refusal.detail
    assert store.step("r1", 0)["received_shards"] == 1
    [receipt] = ingest(store, make_record(attempt=1))
    assert receipt.complete and store.step("r1", 0)["attempt"] == 1


def test_a_step_that_is_still_open_is_not_settled(store: Store, database_url: str, clock: Clock) -> None:
    ingest(store, make_record(shard=0, shards=3))
    clock.now += DAY + 1
    assert store.upkeep.tidy(DAY, 10) == 0
    assert sizes(database_url)[0] == 1


def old_steps(store: Store, clock: Clock, count: int) -> list[ShardRecord]:
    records = [make_record(step, shard, 2) for step in range(count) for shard in range(2)]
    ingest(store, *records)
    store.upkeep.sweep(0.0, 600.0)
    clock.now += DAY + 1
    return records


def test_old_steps_share_a_summary_and_the_newest_keep_theirs(store: Store, database_url: str, clock: Clock) -> None:
    records = old_steps(store, clock, KEPT + 25)
    series = store.series("r1", "gaps.mismatch.k3")
    rows = store.steps("r1", limit=1000).rows
    store.upkeep.tidy(DAY, 10)
    assert sizes(database_url) == (0, KEPT + 5, 2)
    assert store.series("r1", "gaps.mismatch.k3") == series
    assert [row["gaps"] for row in store.steps("r1", limit=1000).rows] == [row["gaps"] for row in rows]
    assert store.step("r1", 3)["breakdowns"] == {}
    assert store.upkeep.tidy(DAY, 10) == 0

    whole = merge_all(summary for _, _, summary in store.summaries("r1", most=1000))
    every = merge_all(record.summary for record in records)
    assert whole.batch == every.batch
    assert whole.gaps["mismatch"].histogram("log_ratio") == every.gaps["mismatch"].histogram("log_ratio")
    assert whole.gaps["mismatch"].sums["k3"] == pytest.approx(every.gaps["mismatch"].sums["k3"], rel=1e-12)


def test_a_block_is_read_once_by_a_range_that_touches_it(store: Store, clock: Clock) -> None:
    records = old_steps(store, clock, KEPT + 20)
    store.upkeep.tidy(DAY, 10)
    found = store.summaries("r1", first=8, last=21)
    assert [step for step, _, _ in found] == [9, 19, 20, 21]
    assert found[0][2].batch["tokens"] == sum(record.summary.batch["tokens"] for record in records[:20])
    spread, count = store.spread_summaries("r1", most=200)
    assert (len(spread), count) == (KEPT + 2, KEPT + 20)
    with pytest.raises(Refusal, match="shares its summary") as refused:
        store.summary("r1", 4)
    assert (refused.value.status, refused.value.kind) == (410, "step-merged")
    assert same(store.summary("r1", 21)[2], found[-1][2])


def test_gradient_steps_and_superseded_attempts_are_in_no_block_twice(
    store: Store, database_url: str, clock: Clock
) -> None:
    for step in range(KEPT + 10):
        ingest(store, make_record(step, minibatch=0), make_record(step, minibatch=1, tokens=7))
    ingest(store, make_record(3, attempt=1, tokens=5))
    clock.now += DAY + 1
    store.upkeep.tidy(DAY, 10)
    [(_, _, block)] = store.summaries("r1", last=9)
    assert block.batch["tokens"] == 9 * 7 + 5
    assert sizes(database_url) == (0, 2 * KEPT, 1)
    assert store.step("r1", 3)["tokens"] == 5


def test_each_step_keeps_its_own_summary_where_that_is_wanted(store: Store, database_url: str, clock: Clock) -> None:
    old_steps(store, clock, KEPT + 20)
    store.upkeep.tidy(DAY, 1)
    assert sizes(database_url) == (0, KEPT + 20, 0)


def test_a_run_whose_steps_cannot_be_merged_keeps_no_other_from_getting_small(
    store: Store, database_url: str, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for run, tokens in (("bad", 13), ("good", 100)):
        for step in range(KEPT + 10):
            ingest(store, make_record(step, run=run, tokens=tokens))
    clock.now += DAY + 1

    def merge(parts: Sequence[Arrays]) -> Arrays:
        if parts[0].record("batch")["tokens"] == 13:
            raise OverflowError("sums beyond a float")
        return merged(parts)

    monkeypatch.setattr("offpolicy_monitor.summary.step.merged", merge)
    with pytest.raises(OverflowError):
        store.upkeep.tidy(DAY, 10)
    assert sizes(database_url) == (0, 2 * KEPT + 10, 1)
    assert store.step("bad", 0)["tokens"] == 13
    monkeypatch.undo()
    assert store.upkeep.tidy(DAY, 10) == 10


def test_a_crash_between_two_portions_loses_nothing(
    open_store: Callable[[], Store], database_url: str, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settle, "PORTION", 16)
    monkeypatch.setattr(settle, "KEPT", 5)
    store = open_store()
    records = old_steps(store, clock, 45)
    turns = 0

    def turn(work: Callable[[], int]) -> int:
        nonlocal turns
        turns += 1
        if turns % 4 == 0:
            raise InterruptedError("the process was killed")
        return work()

    for _ in range(20):
        try:
            store.upkeep.tidy(DAY, 10, turn)
        except InterruptedError:
            store.close()
            store = open_store()
    assert sizes(database_url) == (0, 5, 4)
    whole = merge_all(summary for _, _, summary in store.summaries("r1", most=1000))
    assert whole.batch == merge_all(record.summary for record in records).batch
    store.delete_run("r1")
    store.upkeep.purge()
    assert sizes(database_url) == (0, 0, 0)


def test_a_run_of_thousands_of_steps_is_plotted_from_its_headline_figures(store: Store) -> None:
    first = make_record()
    for start in range(0, 2500, 250):
        steps = range(start, start + 250)
        ingest(store, *(replace(first, key=first.key._replace(step=step), digest=b"%016d" % step) for step in steps))
    found = store.series("r1", "tokens", points=10_000)
    assert found["step"] == list(range(2500)) and set(found["value"]) == {100}
