"""Shards that were stored lately are merged without being read back, and only if they are what is stored."""

from dataclasses import replace
from random import Random

import pytest
from offpolicy_monitor.store import Receipt, ShardRecord, Store
from offpolicy_monitor.store.rows.recent import Recent
from offpolicy_monitor.summary import stored
from offpolicy_monitor.summary.step import StepSummary, merge_all

from tests.fixtures.shards import make_record

STEP_KEY = (1, 0, 0, 0)


def shard(number: int, content: int = 0) -> ShardRecord:
    return make_record(shard=number, shards=8, content=content)


def found(recent: Recent, *records: ShardRecord, key: tuple[int, int, int, int] = STEP_KEY) -> list[StepSummary]:
    return recent.parts(key, [(record.key.shard, (record.digest, record.received_at)) for record in records])


def lacking(record: ShardRecord, number: int) -> ShardRecord:
    """Of every third shard a table less, another one each time."""
    arrays = record.summary.arrays
    gone = [] if number % 3 else [arrays.scheme.keys[number % len(arrays.scheme.keys)]]
    return replace(record, summary=replace(record.summary, arrays=arrays.without(gone)))


def test_a_shard_is_found_by_its_content_and_the_time_it_came() -> None:
    recent, record = Recent(), shard(3)
    recent.put(STEP_KEY, record)
    assert found(recent, record) == [record.summary]
    assert found(recent, shard(3, content=1)) == []
    assert found(recent, replace(record, received_at=record.received_at + 1)) == []
    assert found(recent, record, key=(1, 0, 0, 1)) == []
    recent.drop(STEP_KEY)
    assert found(recent, record) == []


def test_of_too_many_shards_the_oldest_step_goes() -> None:
    records = [shard(number) for number in range(3)]
    recent = Recent(most=3 * records[0].summary.arrays.nbytes)
    recent.put((1, 0, 0, 0), records[0])
    recent.put((1, 1, 0, 0), records[1])
    recent.put((1, 0, 0, 0), records[2])
    recent.put((1, 2, 0, 0), records[0])
    assert found(recent, records[1], key=(1, 1, 0, 0)) == []
    assert found(recent, records[0], records[2]) == [records[0].summary, records[2].summary]
    assert found(recent, records[0], key=(1, 2, 0, 0)) == [records[0].summary]


def test_of_many_shards_few_summaries_are_kept_whose_merge_has_the_same_bits_in_any_order() -> None:
    records = [lacking(make_record(shard=number, shards=100), number) for number in range(100)]
    whole = stored.to_bytes(merge_all(record.summary for record in records))
    size = records[0].summary.arrays.nbytes
    for seed in range(5):
        recent, coming = Recent(most=100 * size), [*records]
        if seed:
            Random(seed).shuffle(coming)
        for record in coming:
            recent.put(STEP_KEY, record)
        parts = found(recent, *records)
        assert len(parts) <= 36
        assert stored.to_bytes(merge_all(parts)) == whole


def test_of_what_was_merged_no_shard_can_be_another_one() -> None:
    records = [make_record(shard=number, shards=100) for number in range(40)]
    recent = Recent()
    for record in records:
        recent.put(STEP_KEY, record)
    assert len(found(recent, *records)) == 9
    again = replace(records[5], received_at=records[5].received_at + 1)
    assert found(recent, *records[:5], again, *records[6:]) == []
    assert found(recent, *records[1:]) == []
    recent.put(STEP_KEY, again)
    assert found(recent, *records) == []
    assert found(recent, again) == [again.summary]


def test_a_step_whose_shards_came_one_by_one_is_merged_at_once_and_unread(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = [make_record(shard=number, shards=16) for number in range(16)]
    with monkeypatch.context() as patched:
        patched.setattr("offpolicy_monitor.summary.stored.from_bytes", lambda blob: pytest.fail("was read back"))
        answers = [store.ingest([record])[0] for record in reversed(records)]
    assert isinstance(answers[-1], Receipt) and answers[-1].step_completed
    merged = merge_all(record.summary for record in records)
    assert stored.to_bytes(store.summary("r1")[2]) == stored.to_bytes(merged)


def test_a_step_of_many_shards_is_merged_without_reading_them_back(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = [make_record(shard=number, shards=80) for number in range(80)]
    monkeypatch.setattr(store._recent, "_most", 50 * records[0].summary.arrays.nbytes)
    with monkeypatch.context() as patched:
        patched.setattr("offpolicy_monitor.summary.stored.from_bytes", lambda blob: pytest.fail("was read back"))
        answers = [store.ingest([record])[0] for record in records]
        assert isinstance(answers[-1], Receipt) and answers[-1].unmerged is not None
        store.upkeep.keep(store.upkeep.merge([answers[-1].unmerged]))
    merged = merge_all(record.summary for record in records)
    assert stored.to_bytes(store.summary("r1")[2]) == stored.to_bytes(merged)
    assert store.step("r1", 0)["received_shards"] == 80


def test_shards_that_another_process_stored_are_read_back(store: Store, database_url: str) -> None:
    records = [make_record(shard=number, shards=3) for number in range(3)]
    store.ingest(records[:2])
    store._recent.drop((1, 0, 0, 0))
    [answer] = store.ingest(records[2:])
    assert isinstance(answer, Receipt) and answer.step_completed
    assert store.step("r1", 0)["tokens"] == 300
