"""Each shard is stored once, each step is merged in shard order, and a refusal leaves no trace."""

import math
import threading
from collections.abc import Callable
from dataclasses import replace

import pytest
from offpolicy_monitor.errors import Refusal
from offpolicy_monitor.store import Outdated, Receipt, ShardRecord, Store, prepared
from offpolicy_monitor.store.rows.tables import metrics, runs, shards, steps
from offpolicy_monitor.store.session import Database, parse_url
from offpolicy_monitor.summary.step import StepSummary, merge_all
from offpolicy_monitor.summary.stored.named import Parts, summary_of
from sqlalchemy import Table, func, select

from tests.fixtures.shards import ingest, make_record
from tests.fixtures.stores import Clock


def refusal(store: Store, record: ShardRecord) -> tuple[int, str, list[str]]:
    [answer] = store.ingest([record])
    assert isinstance(answer, Refusal)
    return answer.status, answer.kind, [error.field for error in answer.errors]


def rows(url: str, table: Table) -> int:
    database = Database(parse_url(url))
    with database.reading() as connection:
        count = connection.execute(select(func.count()).select_from(table)).scalar_one()
    database.close()
    return count


def test_a_step_is_complete_with_its_last_shard(store: Store) -> None:
    first, second = (make_record(shard=i, shards=2) for i in (0, 1))
    [early] = ingest(store, first)
    assert (early.received_shards, early.shards, early.complete, early.step_completed) == (1, 2, False, False)
    [late] = ingest(store, second)
    assert (late.received_shards, late.shards, late.complete, late.step_completed) == (2, 2, True, True)
    assert late.summary == second.summary


def test_one_group_may_complete_a_step(store: Store) -> None:
    receipts = ingest(store, *(make_record(shard=i, shards=3) for i in (2, 0, 1)))
    assert [receipt.received_shards for receipt in receipts] == [1, 2, 3]
    assert [receipt.complete for receipt in receipts] == [False, False, True]


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0), (2, 0, 3, 1)])
@pytest.mark.parametrize("group", [1, 3, 4])
def test_merged_figures_are_bit_equal_whatever_the_order_of_arrival(
    store: Store, order: tuple[int, ...], group: int
) -> None:
    records = [make_record(shard=i, shards=4) for i in range(4)]
    arriving = [records[i] for i in order]
    for start in range(0, 4, group):
        ingest(store, *arriving[start : start + group])
    merged = merge_all(record.summary for record in records).figures()
    row = store.step("r1", 0)
    assert row["gaps"] == merged["gaps"]
    assert row["methods"] == merged["methods"]
    assert row["attribution"] == merged["attribution"]
    assert merge_all(record.summary for record in reversed(records)).figures()["gaps"] != merged["gaps"]


def test_the_same_shard_again_is_a_duplicate_and_changes_nothing(store: Store, clock: Clock) -> None:
    record = make_record(received_at=10.0)
    ingest(store, record)
    before = store.step("r1", 0), store.run("r1"), store.exported(9, 0.0)
    again = replace(record, received_at=900.0, summary=StepSummary.empty())
    [receipt] = ingest(store, again)
    assert (receipt.duplicate, receipt.received_shards, receipt.complete) == (True, 1, True)
    assert receipt.step_completed is False
    assert receipt.summary == record.summary
    assert (store.step("r1", 0), store.run("r1"), store.exported(9, 0.0)) == before


def test_a_shard_twice_in_one_group_counts_once(store: Store) -> None:
    record = make_record(shards=2)
    first, second = ingest(store, record, record)
    assert (first.duplicate, second.duplicate) == (False, True)
    assert second.received_shards == 1
    assert second.summary == record.summary


def test_other_content_under_a_stored_key_is_a_conflict(store: Store) -> None:
    ingest(store, make_record(content=1))
    assert refusal(store, make_record(content=2)) == (409, "shard-conflict", ["shard"])
    assert store.step("r1", 0)["received_shards"] == 1


def test_an_older_attempt_is_stale_for_every_minibatch_of_the_step(store: Store) -> None:
    ingest(store, make_record(step=5, minibatch=1, attempt=2))
    assert refusal(store, make_record(step=5, minibatch=0, attempt=1)) == (409, "stale-attempt", ["attempt"])
    ingest(store, make_record(step=4, attempt=1))


def test_what_was_stored_under_an_older_attempt_is_stale_too(store: Store) -> None:
    old = make_record(step=5)
    ingest(store, old)
    ingest(store, make_record(step=5, attempt=1))
    assert refusal(store, old) == (409, "stale-attempt", ["attempt"])


def test_a_newer_attempt_supersedes_all_minibatches_of_its_step_only(store: Store) -> None:
    ingest(store, make_record(4), make_record(5), make_record(5, minibatch=1), make_record(6, shards=2))
    ingest(store, make_record(5, 0, 2, attempt=1, tokens=7), make_record(6, attempt=1, tokens=8))
    page = store.steps("r1", by="minibatch")
    shown = [(row["step"], row["minibatch"], row["attempt"], row["tokens"]) for row in page.rows]
    assert shown == [(4, 0, 0, 100), (5, 0, 1, 7), (6, 0, 1, 8)]
    assert store.step("r1", 5)["minibatches"] == [0]
    assert store.series("r1", "tokens")["step"] == [4, 6]


def test_a_newer_attempt_may_have_another_number_of_shards(store: Store) -> None:
    ingest(store, make_record(shards=2))
    [receipt] = ingest(store, make_record(shards=4, attempt=1))
    assert (receipt.received_shards, receipt.shards) == (1, 4)


def test_one_group_may_hold_two_attempts(store: Store) -> None:
    old, new = make_record(tokens=1), make_record(attempt=1, tokens=2)
    ingest(store, old, new)
    assert store.step("r1", 0)["tokens"] == 2
    assert refusal(store, old)[1] == "stale-attempt"


def test_shards_must_agree_across_the_minibatches_of_a_step(store: Store) -> None:
    ingest(store, make_record(step=3, minibatch=0, shards=2))
    assert refusal(store, make_record(step=3, shard=1, shards=3)) == (409, "shards-disagree", ["shards"])
    assert refusal(store, make_record(step=3, minibatch=1, shards=1)) == (409, "shards-disagree", ["shards"])
    assert refusal(store, make_record(step=3, shards=3)) == (409, "shards-disagree", ["shards"])
    ingest(store, make_record(step=4, shards=3))


def test_a_shard_measured_by_other_rows_than_its_run_has_is_refused_unless_it_is_stored(store: Store) -> None:
    by_default = replace(make_record(), methods=None)
    ingest(store, by_default)
    rows = [{"name": "tight", "method": "opsm", "delta": 0.001}]
    store.update_run("r1", methods=rows)
    again, old, new = store.ingest(
        [by_default, replace(make_record(1), methods=None), replace(make_record(1), methods=rows)]
    )
    assert isinstance(again, Receipt) and again.duplicate
    assert isinstance(old, Outdated)
    assert isinstance(new, Receipt) and not new.duplicate


def test_a_refused_record_does_not_disturb_its_group(store: Store) -> None:
    ingest(store, make_record(step=1, content=1))
    answers = store.ingest([make_record(step=2), make_record(step=1, content=2), make_record(step=3)])
    assert [type(answer) for answer in answers] == [Receipt, Refusal, Receipt]
    assert [row["step"] for row in store.steps("r1").rows] == [1, 2, 3]


@pytest.mark.parametrize(
    ("field", "record"),
    [
        ("step", make_record(step=2**63)),
        ("minibatch", make_record(minibatch=2**63)),
        ("attempt", make_record(attempt=2**63)),
        ("shards", make_record(shards=2**63)),
        ("shards", make_record(shard=2, shards=2)),
        ("policy_version", make_record(policy_version=2**63)),
        ("minibatches", make_record(minibatches=2**63)),
    ],
)
def test_a_number_that_the_database_cannot_hold_is_refused_and_stores_nothing(
    store: Store, database_url: str, field: str, record: ShardRecord
) -> None:
    assert refusal(store, record) == (422, "out-of-range", [field])
    assert rows(database_url, runs) == 0


HUGE = 1.2e308
ONE = {"tokens": 1}
BUCKET = {"tokens": 1, "log_ratio": 0.0, "log_ratio_abs": 0.0, "log_ratio_square": 0.0, "k3": HUGE}
OVERFLOWS = [
    (Parts({**ONE, "reward": math.inf}), "rewards"),
    (Parts({**ONE, "reward": math.nan}), "rewards"),
    (Parts({**ONE, "reward": -HUGE}), "rewards"),
    (Parts({**ONE, "entropy": HUGE}), "entropy"),
    (Parts(ONE, {"total": {**ONE, "log_ratio_square": HUGE}}), "logprobs"),
    (Parts(ONE, {"total": {**ONE, "log_ratio_min": -math.inf}}), "logprobs"),
    (Parts(ONE, methods={"opsm": {"k3_kept": HUGE}}, specs={"opsm": {}}), "logprobs"),
    (Parts(ONE, methods={"opsm": {"advantage_mass": HUGE}}, specs={"opsm": {}}), "advantages"),
    (Parts(ONE, cross={"mismatch_square": HUGE}), "logprobs"),
    (Parts(ONE, tables={"advantage/total": {"mass_square": HUGE}}), "advantages"),
    (Parts(ONE, tables={"whatif/total/log_ratio/mass": {"7": math.inf}}), "advantages"),
    (Parts(ONE, tables={"breakdown/turn/1/total": BUCKET}), "logprobs"),
    (Parts(ONE, tables={"routing/total/trend": {"layers_square": 2**62}}), "experts"),
]


@pytest.mark.parametrize(("parts", "field"), OVERFLOWS)
def test_a_sum_that_could_overflow_when_merged_is_refused_and_leaves_its_group_alone(
    store: Store, database_url: str, parts: Parts, field: str
) -> None:
    good = make_record(1)
    refused, receipt = store.ingest([replace(make_record(), summary=summary_of(parts)), good])
    assert isinstance(refused, Refusal) and isinstance(receipt, Receipt)
    assert (refused.status, refused.kind, [error.field for error in refused.errors]) == (
        422,
        "figures-overflow",
        [field],
    )
    assert rows(database_url, shards) == 1


def test_the_largest_sums_that_are_taken_can_be_merged(store: Store) -> None:
    summary = summary_of(Parts({"tokens": 1, "reward_sequences": 1, "reward": 1e290}))
    for shard in range(3):
        ingest(store, replace(make_record(shard=shard, shards=3), summary=summary))
    assert store.step("r1", 0)["reward_mean"] == 1e290


def test_a_batch_without_tokens_is_stored_with_counts_of_zero(store: Store) -> None:
    ingest(store, replace(make_record(), summary=StepSummary.empty()))
    row = store.step("r1", 0)
    assert (row["tokens"], row["sequences"], row["gaps"], row["attribution"]) == (0, 0, {}, None)


def test_no_transaction_makes_the_figures_of_a_shard_that_is_its_whole_step(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made(*_: object) -> None:
        raise AssertionError("figures were made")

    record = prepared(make_record())
    monkeypatch.setattr(StepSummary, "_of_batch", property(made))
    [receipt] = ingest(store, record)
    assert receipt.complete


def test_an_empty_group_is_nothing(store: Store) -> None:
    assert store.ingest([]) == []


def test_a_step_counts_after_its_deadline_with_what_it_has(store: Store) -> None:
    ingest(store, make_record(shards=2, received_at=100.0))
    assert store.upkeep.sweep(699.0, 600.0) == 0
    assert store.exported(9, 0.0)[0].step is None
    assert store.upkeep.sweep(700.0, 600.0) == 1
    assert store.upkeep.sweep(700.0, 600.0) == 0
    [exported] = store.exported(9, 0.0)
    assert (exported.step, exported.coverage, exported.figures["tokens"]) == (0, 0.5, 100)
    row = store.step("r1", 0)
    assert (row["complete"], row["received_shards"]) == (False, 1)


def test_more_steps_may_be_overdue_than_one_transaction_closes(store: Store) -> None:
    ingest(store, *(make_record(step, shards=2) for step in range(70)))
    assert store.upkeep.sweep(9999.0, 600.0) == 70


def test_a_late_shard_recomputes_a_step_that_was_closed(store: Store) -> None:
    records = [make_record(shard=i, shards=3, tokens=10) for i in range(3)]
    ingest(store, records[2])
    store.upkeep.sweep(9999.0, 600.0)
    [receipt] = ingest(store, records[0])
    assert (receipt.complete, receipt.step_completed) == (False, True)
    assert store.exported(9, 0.0)[0].figures["tokens"] == 20
    assert store.series("r1", "tokens")["value"] == [20]
    [receipt] = ingest(store, records[1])
    assert (receipt.complete, receipt.step_completed) == (True, True)
    assert store.step("r1", 0)["gaps"] == merge_all(record.summary for record in records).figures()["gaps"]


def test_policy_version_and_minibatches_do_not_depend_on_the_order_of_arrival(store: Store) -> None:
    ingest(store, make_record(0, 0, 2, policy_version=8), make_record(0, 1, 2, policy_version=7))
    ingest(store, make_record(1, 1, 2, policy_version=7), make_record(1, 0, 2, policy_version=8))
    assert [store.step("r1", step)["policy_version"] for step in (0, 1)] == [8, 8]


def test_what_was_acknowledged_is_there_after_a_restart(open_store: Callable[[], Store]) -> None:
    records = [make_record(shard=i, shards=2) for i in range(2)]
    store = open_store()
    ingest(store, records[0])
    before = store.exported(9, 0.0)
    store.close()
    reopened = open_store()
    assert reopened.exported(9, 0.0) == before
    assert [receipt.duplicate for receipt in ingest(reopened, *records)] == [True, False]
    assert reopened.step("r1", 0)["complete"] is True


def test_a_deleted_run_leaves_nothing_and_may_begin_again(store: Store, database_url: str) -> None:
    ingest(store, make_record(), make_record(1, 0, 2), make_record(run="r2"))
    store.delete_run("r1")
    store.upkeep.purge()
    assert [rows(database_url, table) for table in (runs, shards, steps)] == [1, 1, 1]
    [receipt] = ingest(store, make_record(content=5))
    assert (receipt.duplicate, receipt.complete) == (False, True)
    store.delete_run("r1")
    store.delete_run("r2")
    store.upkeep.purge()
    assert [rows(database_url, table) for table in (runs, shards, steps, metrics)] == [0, 0, 0, 0]


def test_two_processes_that_finish_a_step_at_once_leave_it_merged(postgres_url: str, clock: Clock) -> None:
    stores = [Store.open(postgres_url, clock) for _ in range(2)]
    for step in range(15):
        barrier = threading.Barrier(2)

        def work(shard: int, step: int = step, barrier: threading.Barrier = barrier) -> None:
            barrier.wait()
            ingest(stores[shard], make_record(step, shard, 2))

        threads = [threading.Thread(target=work, args=(shard,)) for shard in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [row["complete"] for row in stores[0].steps("r1").rows] == [True] * 15
    assert stores[0].series("r1", "tokens")["value"] == [200] * 15
    for store in stores:
        store.close()
