"""Stores a group of shards in the caller's one transaction: hold their runs, load what they touch, decide, write.

Few statements a group, whatever its size: decisions are made by the Ledger on what was loaded at once. A record that
cannot be stored comes back as its Refusal and leaves no trace; the others are not disturbed.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from typing import Any, Final

from sqlalchemy import Connection, bindparam, insert, select, tuple_, update

from offpolicy_monitor.errors import Refusal
from offpolicy_monitor.store.rows import training_steps as training_rows
from offpolicy_monitor.store.rows.alerts import open_alerts
from offpolicy_monitor.store.rows.gradient_steps import LEDGER_COLUMNS, GradientStep, gradient_step
from offpolicy_monitor.store.rows.held import HeldRun, hold_runs
from offpolicy_monitor.store.rows.merged_steps import Failed, Merged, merge_at_once
from offpolicy_monitor.store.rows.recent import Recent
from offpolicy_monitor.store.rows.records import Outdated, Place, Receipt, ShardKey, ShardRecord
from offpolicy_monitor.store.rows.tables import runs, shards, steps
from offpolicy_monitor.store.rows.training import TrainingStep
from offpolicy_monitor.store.rows.verdicts import verdict, worst_of_each_rule
from offpolicy_monitor.store.write.judge import Judging
from offpolicy_monitor.store.write.ledger import Ledger
from offpolicy_monitor.store.write.save import save_steps
from offpolicy_monitor.summary import stored
from offpolicy_monitor.summary.step import StepSummary


def ingest(
    connection: Connection,
    records: Sequence[ShardRecord],
    prepared: Sequence[bytes | Refusal],
    judging: Judging,
    recent: Recent,
    now: float,
    failed: Failed,
) -> list[Receipt | Refusal]:
    """Store each record once, and judge the training steps that are over by it; answers in the order given.

    A step that is too large to be merged here, and one whose merge fails, which is told to `failed`, are left as they
    were; receipts name the former in `unmerged`.
    """
    storable = [record for record, blob in zip(records, prepared, strict=True) if not isinstance(blob, Refusal)]
    if not storable:
        return [blob for blob in prepared if isinstance(blob, Refusal)]
    held = hold_runs(connection, [record.key.run for record in storable], now)
    ledger = load_ledger(connection, {name: run.id for name, run in held.items()}, storable)
    answers: list[Receipt | Refusal] = []
    blobs: dict[ShardKey, bytes] = {}
    for record, blob in zip(records, prepared, strict=True):
        answer = blob if isinstance(blob, Refusal) else _outdated(record, held, ledger) or ledger.enter(record)
        if isinstance(blob, bytes) and isinstance(answer, Receipt) and not answer.duplicate:
            blobs[record.key] = blob
        answers.append(answer)
    failures: set[int] = set()

    def put_aside(step: GradientStep, error: Exception) -> None:
        failures.add(id(step))
        failed(step, error)

    merged = _write(connection, held, ledger, blobs, recent, put_aside, now)
    alerts: dict[int, list[dict[str, Any]]] = {}
    if ledger.touched:
        of_rows = {ledger.touched[key].id: found for key, found in merged.items()}
        alerts = judging.settle(connection, held, _to_settle(connection, held, ledger), of_rows, now)
    answers = [
        _as_it_stands(answer, record, held, ledger, failures) for record, answer in zip(records, answers, strict=True)
    ]
    others = [run.id for run in held.values() if run.id not in alerts]
    alerts |= open_alerts(connection, others) if others else {}
    return _with_alerts({name: alerts[run.id] for name, run in held.items()}, records, answers)


def _outdated(record: ShardRecord, held: Mapping[str, HeldRun], ledger: Ledger) -> Outdated | None:
    """Whether a shard that is new was measured by other rows than its run has now."""
    is_of = record.methods == "any" or record.methods == held[record.key.run].methods
    return None if is_of or record.key in ledger.digests else Outdated()


def _as_it_stands(
    answer: Receipt | Refusal,
    record: ShardRecord,
    held: Mapping[str, HeldRun],
    ledger: Ledger,
    failures: Set[int],
) -> Receipt | Refusal:
    """The answer, where its step was to be merged: done, still to be done, or not possible."""
    step = ledger.step_of.get(record.key)
    if isinstance(answer, Refusal) or not answer.step_completed or step is None or not step.due:
        return answer
    place = (held[step.run].id, step.step, step.minibatch, step.attempt)
    waits = id(step) not in failures and not step.superseded
    return replace(answer, step_completed=False, unmerged=place if waits else None)


def _to_settle(connection: Connection, held: Mapping[str, HeldRun], ledger: Ledger) -> list[TrainingStep]:
    """The training steps that may be over now: those touched, and those that wait for a later one to begin."""
    ids = {name: run.id for name, run in held.items()}
    touched = {(ids[step.run], step.step) for step in ledger.touched.values()}
    restarted = {(ids[step.run], step.step) for step in ledger.touched.values() if step.superseded}
    training_rows.forget(connection, restarted)
    newest: dict[int, int] = {}
    for run, step in touched:
        newest[run] = max(step, newest.get(run, step))
    earlier = {place for place in training_rows.undeclared(connection, newest) if place[1] < newest[place[0]]}
    names = {run.id: name for name, run in held.items()}
    waited_for = training_rows.load(connection, names, earlier - touched)
    standing = [TrainingStep.of(list(ledger.steps[names[run], step].values())) for run, step in touched]
    return [*standing, *waited_for]


def _with_alerts(
    alerts: Mapping[str, Sequence[dict[str, Any]]], records: Sequence[ShardRecord], answers: Sequence[Receipt | Refusal]
) -> list[Receipt | Refusal]:
    """Receipts with what the rules say of their runs now; `alerts` are the open ones of each run."""
    told = {run: (verdict(rows), tuple(worst_of_each_rule(rows))) for run, rows in alerts.items()}
    return [
        answer
        if isinstance(answer, Refusal)
        else replace(answer, verdict=told[record.key.run][0], alerts=told[record.key.run][1])
        for record, answer in zip(records, answers, strict=True)
    ]


def load_ledger(connection: Connection, ids: Mapping[str, int], records: Sequence[ShardRecord]) -> Ledger:
    """What is stored of the steps and of the very shards that the records name; `ids` are those of their runs."""
    names = {id: name for name, id in ids.items()}
    places = {(ids[record.key.run], record.key.step) for record in records}
    keys = {_row_key(ids, record.key): record.key for record in records}
    ledger = Ledger(stored_summary=lambda key: _stored_summary(connection, _row_key(ids, key)))
    for row in connection.execute(_STEPS_AT, {"places": list(places)}):
        name = names[row.run_id]
        ledger.steps.setdefault((name, row.step), {})[row.minibatch] = gradient_step(name, row)
    for *key, digest in connection.execute(_DIGESTS_OF, {"keys": list(keys)}):
        ledger.digests[keys[tuple(key)]] = digest
    return ledger


# Made once: putting a statement together takes as long as running it.
_STEPS_AT: Final = select(*LEDGER_COLUMNS).where(
    tuple_(steps.c.run_id, steps.c.step).in_(bindparam("places", expanding=True)), ~steps.c.superseded
)
_DIGESTS_OF: Final = select(*shards.primary_key, shards.c.digest).where(
    tuple_(*shards.primary_key).in_(bindparam("keys", expanding=True))
)
_RUNS_SEEN: Final = (
    update(runs)
    .where(runs.c.id == bindparam("key"))
    .values(last_batch_at=bindparam("last_batch_at"), finished_at=bindparam("finished_at"))
)


def _write(
    connection: Connection,
    held: Mapping[str, HeldRun],
    ledger: Ledger,
    blobs: Mapping[ShardKey, bytes],
    recent: Recent,
    failed: Failed,
    now: float,
) -> Mapping[int, Merged]:
    if not ledger.accepted:
        return {}
    ids = {name: run.id for name, run in held.items()}
    records = ledger.accepted.values()
    touched = list(ledger.touched.values())
    arrived = [(record, blobs[record.key]) for record in records]
    # First those that are one shard: where the step keeps its summary, the shard needs none of its own.
    whole = [step for step in touched if step.due and step.shards == 1]
    merged = merge_at_once(connection, ids, whole, arrived, recent, failed)
    alone = {record.key for record in records if id(ledger.step_of[record.key]) in merged}
    rows = [_shard_row(ids, record, b"" if record.key in alone else blobs[record.key]) for record in records]
    connection.execute(insert(shards), rows)
    for record in records:
        if record.shards > 1:
            recent.put(_place(ids, record.key), record)
    others = [step for step in touched if step.due and step.shards > 1]
    merged |= merge_at_once(connection, ids, others, arrived, recent, failed)
    for step in others:
        if id(step) in merged and step.received == step.shards:
            recent.drop((ids[step.run], step.step, step.minibatch, step.attempt))
    save_steps(connection, held, touched, merged)
    # The clock may have been set back since the batch before.
    latest = {name: min(run.last_batch_at or 0.0, now) for name, run in held.items()}
    for record in records:
        latest[record.key.run] = max(latest[record.key.run], record.received_at)
    named = sorted({record.key.run for record in records})
    changes = [{"key": ids[name], "last_batch_at": latest[name], "finished_at": None} for name in named]
    connection.execute(_RUNS_SEEN, changes)
    return merged


def _place(ids: Mapping[str, int], key: ShardKey) -> Place:
    return ids[key.run], key.step, key.minibatch, key.attempt


def _row_key(ids: Mapping[str, int], key: ShardKey) -> tuple[int, ...]:
    """The key in the order of the primary key of `shards`."""
    return *_place(ids, key), key.shard


def _stored_summary(connection: Connection, row_key: tuple[int, ...]) -> StepSummary | None:
    """The summary of a shard: its own, or that of the step that it is; None where neither is kept any more."""
    query = select(shards.c.summary, shards.c.shards).where(tuple_(*shards.primary_key) == row_key)
    blob, count = connection.execute(query).one()
    if not blob and count == 1:
        place = (steps.c.run_id, steps.c.step, steps.c.minibatch, steps.c.attempt)
        blob = connection.execute(select(steps.c.summary).where(tuple_(*place) == row_key[:4])).scalar()
    return stored.from_bytes(blob) if blob else None


def _shard_row(ids: Mapping[str, int], record: ShardRecord, blob: bytes) -> dict[str, object]:
    key, counts = record.key, record.summary.batch
    return {
        "run_id": ids[key.run],
        "step": key.step,
        "minibatch": key.minibatch,
        "attempt": key.attempt,
        "shard": key.shard,
        "shards": record.shards,
        "digest": record.digest,
        "tokens": int(counts.get("tokens", 0)),
        "sequences": int(counts.get("sequences", 0)),
        "policy_version": record.policy_version,
        "labels": record.labels,
        "dtypes": record.dtypes,
        "received_at": record.received_at,
        "summary": blob,
    }
