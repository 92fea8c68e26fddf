"""Large steps are merged outside of any transaction, and a step that cannot be merged stops no other."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from offpolicy_monitor.store import GradientStep, Receipt, ShardRecord, Store
from offpolicy_monitor.store.rows.merged_steps import Merged, Part, merge_parts
from offpolicy_monitor.store.write import finish
from offpolicy_monitor.store.write.finish import SetAside
from offpolicy_monitor.store.write.save import save_steps as whole
from offpolicy_monitor.summary.arrays import Arrays
from offpolicy_monitor.summary.merge import merged
from offpolicy_monitor.summary.step import merge_all

from tests.fixtures.shards import ingest, make_record

#: Too many shards to be merged by the transaction that stores the last of them.
MANY = 60


def stored_one_by_one(store: Store, records: list[ShardRecord]) -> Receipt:
    return [ingest(store, record)[0] for record in records][-1]


def test_the_last_shard_of_a_large_step_is_stored_without_merging_the_others(store: Store) -> None:
    records = [make_record(shard=shard, shards=MANY) for shard in range(MANY)]
    receipt = stored_one_by_one(store, records)
    assert (receipt.received_shards, receipt.complete, receipt.step_completed) == (MANY, True, False)
    assert receipt.unmerged is not None
    assert store.exported(9, 0.0)[0].step is None
    assert store.series("r1", "tokens")["value"] == []

    merges = store.upkeep.merge([receipt.unmerged])
    assert store.upkeep.keep(merges) == 1

    finished = store.upkeep.finished(receipt, "r1")
    assert (finished.step_completed, finished.unmerged) == (True, None)
    assert store.exported(9, 0.0)[0].coverage == 1.0
    row, expected = store.step("r1", 0), merge_all(record.summary for record in records).figures()
    assert (row["complete"], row["received_shards"], row["gaps"]) == (True, MANY, expected["gaps"])
    assert store.upkeep.keep(merges) == 0


def test_figures_of_a_large_step_are_computed_before_the_transaction_that_keeps_them(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    [*_, receipt] = store.ingest([make_record(shard=shard, shards=MANY) for shard in range(MANY)])
    assert isinstance(receipt, Receipt) and receipt.unmerged is not None
    merges = store.upkeep.merge([receipt.unmerged])

    def forbidden(*given: object) -> None:
        raise AssertionError("figures are computed while the writer is held")

    for maker in ("gaps_told", "methods_told", "finite"):
        monkeypatch.setattr(f"offpolicy_monitor.summary.step.{maker}", forbidden)
    assert store.upkeep.keep(merges) == 1
    assert store.series("r1", "tokens")["value"] == [100 * MANY]


def test_figures_do_not_depend_on_the_order_in_which_the_shards_of_a_large_step_came(store: Store) -> None:
    for run, order in (("forth", 1), ("back", -1)):
        records = [make_record(shard=shard, shards=MANY, run=run) for shard in range(MANY)][::order]
        records = [replace(record, summary=make_record(shard=record.key.shard).summary) for record in records]
        stored_one_by_one(store, records)
    assert store.upkeep.sweep(0.0, 600.0) == 2
    assert store.step("forth", 0)["gaps"] == store.step("back", 0)["gaps"]


def test_a_merge_that_a_crash_prevented_is_made_by_the_next_sweep(open_store: Callable[[], Store]) -> None:
    store = open_store()
    stored_one_by_one(store, [make_record(shard=shard, shards=MANY) for shard in range(MANY)])
    store.close()
    store = open_store()
    assert store.upkeep.sweep(0.0, 600.0) == 1
    assert store.step("r1", 0)["complete"] is True
    assert store.exported(9, 0.0)[0].step == 0


def test_a_late_shard_of_a_large_step_shows_once_it_is_merged(store: Store) -> None:
    records = [make_record(shard=shard, shards=MANY) for shard in range(MANY)]
    stored_one_by_one(store, records[1:])
    assert store.upkeep.sweep(1e9, 600.0) == 1
    [receipt] = ingest(store, records[0])
    assert (receipt.complete, receipt.step_completed) == (True, False)
    assert (store.step("r1", 0)["received_shards"], store.step("r1", 0)["tokens"]) == (MANY - 1, 100 * (MANY - 1))
    assert receipt.unmerged is not None
    assert store.upkeep.keep(store.upkeep.merge([receipt.unmerged])) == 1
    row, expected = store.step("r1", 0), merge_all(record.summary for record in records).figures()
    assert (row["complete"], row["received_shards"], row["gaps"]) == (True, MANY, expected["gaps"])
    assert store.series("r1", "tokens")["value"] == [100 * MANY]


def test_an_older_merge_does_not_replace_a_newer_one(store: Store) -> None:
    records = [make_record(shard=shard, shards=MANY + 1) for shard in range(MANY)]
    stored_one_by_one(store, records[:-1])
    store.upkeep.sweep(1e9, 600.0)
    first = ingest(store, records[-1])[0].unmerged
    assert first is not None
    older = store.upkeep.merge([first])
    [last] = ingest(store, make_record(shard=MANY, shards=MANY + 1))
    assert store.upkeep.keep(store.upkeep.merge([first])) == 1
    assert store.upkeep.keep(older) == 0
    assert (store.step("r1", 0)["received_shards"], last.complete) == (MANY + 1, True)


def test_a_step_superseded_while_it_is_merged_is_not_kept(store: Store) -> None:
    receipt = stored_one_by_one(store, [make_record(shard=shard, shards=MANY) for shard in range(MANY)])
    assert receipt.unmerged is not None
    merges = store.upkeep.merge([receipt.unmerged])
    ingest(store, make_record(attempt=1))
    assert store.upkeep.keep(merges) == 0
    assert store.step("r1", 0)["attempt"] == 1


def failing_merges(monkeypatch: pytest.MonkeyPatch, tokens: int) -> None:
    """Makes every merge fail whose first shard has so many tokens."""

    def merge(parts: Sequence[Arrays]) -> Arrays:
        if parts[0].record("batch")["tokens"] == tokens:
            raise OverflowError("sums beyond a float")
        return merged(parts)

    monkeypatch.setattr("offpolicy_monitor.summary.step.merged", merge)


def test_a_step_that_cannot_be_merged_does_not_keep_others_open_and_is_not_tried_at_once_again(
    open_store: Callable[..., Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[int, str]] = []
    store = open_store(failed=lambda step, error: told.append((step.step, str(error))))
    for step in range(20):
        ingest(store, *(make_record(step, shard, 3, tokens=13 if step == 5 else 100) for shard in range(2)))
    failing_merges(monkeypatch, 13)
    assert store.upkeep.sweep(1e9, 600.0) == 19
    assert told == [(5, "sums beyond a float")]
    assert store.upkeep.sweep(1e9, 600.0) == 0
    assert len(told) == 1
    monkeypatch.undo()
    store.close()
    assert open_store().upkeep.sweep(1e9, 600.0) == 1


def test_a_step_that_cannot_be_kept_does_not_keep_others_of_its_run_open(
    open_store: Callable[..., Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[int] = []
    store = open_store(failed=lambda step, error: told.append(step.step))
    for step in range(5):
        ingest(store, make_record(step, shards=2))

    def save_steps(connection: object, held: object, touched: list[GradientStep], merged: object) -> None:
        if any(step.step == 3 for step in touched):
            raise ValueError("this step cannot be written")
        whole(connection, held, touched, merged)  # pyrefly: ignore[bad-argument-type]

    monkeypatch.setattr("offpolicy_monitor.store.write.finish.save_steps", save_steps)
    assert store.upkeep.sweep(1e9, 600.0) == 4
    assert told == [3]
    assert store.series("r1", "tokens")["step"] == [0, 1, 2, 4]


def test_a_shard_whose_step_cannot_be_merged_is_stored_all_the_same(
    open_store: Callable[..., Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[int] = []
    store = open_store(failed=lambda step, error: told.append(step.step))
    failing_merges(monkeypatch, 13)
    ingest(store, make_record(0, 0, 2, tokens=13))
    receipts = ingest(store, make_record(0, 1, 2), make_record(1, 0, 1))
    assert [(receipt.complete, receipt.step_completed) for receipt in receipts] == [(True, False), (True, True)]
    assert (told, receipts[0].unmerged) == ([0], None)
    assert store.series("r1", "tokens")["step"] == [1]


def test_what_is_set_aside_is_tried_less_and_less_often() -> None:
    aside, waits, now, step = SetAside(), [], 0.0, (1, 0, 0, 0)
    for _ in range(10):
        aside.put(step, now)
        waited = 0.0
        while aside.holds(step, now + waited):
            waited += 600.0
        now += waited
        waits.append(waited)
    assert waits[:4] == [600.0, 1200.0, 2400.0, 4800.0]
    assert waits[-1] == 86_400.0
    aside.forget(step)
    assert not aside.holds(step, now) and len(aside) == 0


def test_a_sweep_writes_a_few_steps_a_turn(store: Store) -> None:
    for step in range(30):
        ingest(store, make_record(step, shards=2))
    turns: list[int] = []

    def turn(work: Callable[[], int]) -> int:
        turns.append(work())
        return turns[-1]

    assert store.upkeep.sweep(1e9, 600.0, turn) == 30
    assert sum(turns) == 30 and max(turns) <= finish.MOST


def test_merging_a_large_step_leaves_the_store_to_others(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    receipt = stored_one_by_one(store, [make_record(shard=shard, shards=MANY) for shard in range(MANY)])
    assert receipt.unmerged is not None
    inside, go_on = threading.Event(), threading.Event()

    def slowly(parts: Sequence[Part], count: int) -> Merged:
        inside.set()
        assert go_on.wait(10)
        return merge_parts(parts, count)

    monkeypatch.setattr("offpolicy_monitor.store.rows.merged_steps.merge_parts", slowly)
    thread = threading.Thread(target=store.upkeep.merge, args=([receipt.unmerged],))
    thread.start()
    try:
        assert inside.wait(10)
        assert ingest(store, make_record(1))[0].step_completed
    finally:
        go_on.set()
        thread.join()
