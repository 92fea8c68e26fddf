"""Shards that were stored lately are merged without being read back, and only if they are what is stored."""

import pytest
from offpolicy_monitor.store import Receipt, ShardRecord, Store
from offpolicy_monitor.store.rows.recent import Recent
from offpolicy_monitor.summary import stored
from offpolicy_monitor.summary.step import StepSummary, merge_all

from tests.fixtures.shards import make_record

STEP_KEY = (1, 0, 0, 0)


def shard(number: int, content: int = 0) -> ShardRecord:
    return make_record(shard=number, shards=8, content=content)


def found(recent: Recent, record: ShardRecord, key: tuple[int, int, int, int] = STEP_KEY) -> StepSummary | None:
    return recent.get(key, record.key.shard, (record.digest, record.received_at))


def test_a_shard_is_found_by_its_content_and_the_time_it_came() -> None:
    recent, record = Recent(), shard(3)
    recent.put(STEP_KEY, record)
    assert found(recent, record) is record.summary
    assert found(recent, shard(3, content=1)) is None
    assert recent.get(STEP_KEY, 3, (record.digest, record.received_at + 1)) is None
    assert found(recent, record, (1, 0, 0, 1)) is None
    recent.drop(STEP_KEY)
    assert found(recent, record) is None


def test_of_too_many_shards_the_oldest_step_goes() -> None:
    records = [shard(number) for number in range(3)]
    recent = Recent(most=3 * records[0].summary.arrays.buffer.nbytes)
    recent.put((1, 0, 0, 0), records[0])
    recent.put((1, 1, 0, 0), records[1])
    recent.put((1, 0, 0, 0), records[2])
    recent.put((1, 2, 0, 0), records[0])
    assert found(recent, records[1], (1, 1, 0, 0)) is None
    assert found(recent, records[0]) and found(recent, records[2]) and found(recent, records[0], (1, 2, 0, 0))


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


def test_shards_that_another_process_stored_are_read_back(store: Store, database_url: str) -> None:
    records = [make_record(shard=number, shards=3) for number in range(3)]
    store.ingest(records[:2])
    store._recent.drop((1, 0, 0, 0))
    [answer] = store.ingest(records[2:])
    assert isinstance(answer, Receipt) and answer.step_completed
    assert store.step("r1", 0)["tokens"] == 300
