"""Stores a group of shards in the caller's one transaction: hold their runs, load what they touch, decide, write.

Few statements per group, whatever its size: decisions are made by the Ledger on what was loaded at once. A record that
cannot be stored comes back as its Refusal and leaves no trace; the others are not disturbed.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from sqlalchemy import Connection, bindparam, insert, select, tuple_, update

from offpolicy_monitor.errors import Refusal
from offpolicy_monitor.store.rows import training_steps as training_rows
from offpolicy_monitor.store.rows.gradient_steps import LEDGER_COLUMNS, GradientStep, gradient_step
from offpolicy_monitor.store.rows.headlines import Ids
from offpolicy_monitor.store.rows.held import HeldRun, hold_runs, new_revision
from offpolicy_monitor.store.rows.memory import Memories, RunMemory, Standing
from offpolicy_monitor.store.rows.merged_steps import Failed, Merged, merge_at_once, shards_of
from offpolicy_monitor.store.rows.recent import Recent, Shards
from offpolicy_monitor.store.rows.records import Outdated, Receipt, ShardKey, ShardRecord, StepKey
from offpolicy_monitor.store.rows.statement import Statement
from offpolicy_monitor.store.rows.tables import runs, shards, steps
from offpolicy_monitor.store.rows.training_step import TrainingStep
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
    memories: Memories,
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
    known = {name: memories.take(run) for name, run in held.items()}
    ledger = load_ledger(connection, {name: run.id for name, run in held.items()}, storable, known)
    answers: list[Receipt | Refusal] = []
    blobs: dict[ShardKey, bytes] = {}
    for record, blob in zip(records, prepared, strict=True):
        answer = blob if isinstance(blob, Refusal) else _outdated(record, held, ledger) or ledger.enter(record)
        if isinstance(blob, bytes) and isinstance(answer, Receipt) and not answer.duplicate:
            blobs[record.key] = blob
        answers.append(answer)
    held = {name: _reopened(run, name, ledger) for name, run in held.items()}
    failures: set[int] = set()

    def put_aside(step: GradientStep, error: Exception) -> None:
        failures.add(id(step))
        failed(step, error)

    merged = _write(connection, held, ledger, blobs, recent, memories.names(connection), put_aside)
    if ledger.touched:
        of_rows = {ledger.touched[key].id: found for key, found in merged.items()}
        to_settle = _to_settle(connection, held, ledger, known)
        judging.settle(connection, held, to_settle, of_rows, now, {memory.run: memory for memory in known.values()})
    answers = [
        _as_it_stands(answer, record, held, ledger, failures) for record, answer in zip(records, answers, strict=True)
    ]
    told = _with_alerts({name: memory.alerts(connection) for name, memory in known.items()}, records, answers)
    _keep_runs(connection, held, ledger, known, memories, now)
    return told


def _outdated(record: ShardRecord, held: Mapping[str, HeldRun], ledger: Ledger) -> Outdated | None:
    """Whether a shard that is new was measured by other rows than its run has now, or was not new a moment ago."""
    is_of = record.methods == "any" or record.methods == held[record.key.run].methods
    return None if (is_of and not record.is_stored) or ledger.has(record.key) else Outdated()


def _reopened(run: HeldRun, name: str, ledger: Ledger) -> HeldRun:
    """The run, which goes on where another step begins: the last shards of those that had begun may come late."""
    if run.finished_at is None:
        return run
    begins = any(ledger.step_of[key].id is None for key in ledger.accepted if key.run == name)
    return replace(run, finished_at=None) if begins else run


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
    key = (held[step.run].id, step.step, step.minibatch, step.attempt)
    waits = id(step) not in failures and not step.superseded
    return replace(answer, step_completed=False, unmerged=key if waits else None)


def _to_settle(
    connection: Connection, held: Mapping[str, HeldRun], ledger: Ledger, known: Mapping[str, RunMemory]
) -> list[TrainingStep]:
    """The training steps that may be over now: those touched, and those that wait for a later one to begin."""
    found = []
    for name, run in held.items():
        touched = {step.step for step in ledger.touched.values() if step.run == name}
        restarted = {step.step for step in ledger.touched.values() if step.run == name and step.superseded}
        memory = known[name]
        memory.forget(connection, restarted)
        standing = {step: TrainingStep.of([*ledger.steps[name, step].gradient_steps.values()]) for step in touched}
        for step, training_step in standing.items():
            memory.began(step, min(each.first_received_at for each in training_step.gradient_steps))
        waiting = memory.waiting(connection).items() if touched else ()
        earlier = {step for step, (declared, _) in waiting if declared is None and step < max(touched)} - touched
        waited_for = training_rows.load(connection, {run.id: name}, {(run.id, step) for step in earlier})
        found += [*standing.values(), *waited_for]
    return found


def _with_alerts(
    alerts: Mapping[str, Sequence[dict[str, Any]]], records: Sequence[ShardRecord], answers: Sequence[Receipt | Refusal]
) -> list[Receipt | Refusal]:
    """Receipts with what the rules say of their runs now; `alerts` are the open ones of each run.

    Where there are none, a receipt says so already.
    """
    told: dict[str, dict[str, Any]] = {
        run: {"verdict": verdict(rows), "alerts": tuple(worst_of_each_rule(rows))}
        for run, rows in alerts.items()
        if rows
    }
    return [
        replace(answer, **told[record.key.run]) if isinstance(answer, Receipt) and record.key.run in told else answer
        for record, answer in zip(records, answers, strict=True)
    ]


def load_ledger(
    connection: Connection,
    ids: Mapping[str, int],
    records: Sequence[ShardRecord],
    known: Mapping[str, RunMemory] = MappingProxyType({}),
) -> Ledger:
    """What is stored of the steps and of the very shards that the records name; `ids` are those of their runs.

    What a run's memory in `known` has is taken from there, and kept right in it by what is entered.
    """
    ledger = Ledger(stored_summary=lambda key: _stored_summary(connection, _row_key(ids, key)))
    asked = []
    for record in records:
        of_step = record.key.run, record.key.step
        if of_step not in ledger.steps and record.key.run in known:
            standing = known[record.key.run].standing(connection, record.key.step)
            if standing is not None:
                ledger.steps[of_step] = standing
        if not ledger.steps.get(of_step, Standing()).whole:
            asked.append(record.key)
    for run, step in {(key.run, key.step) for key in asked}:
        standing = ledger.steps.setdefault((run, step), Standing())
        for row in _STEPS_AT.rows(connection, run=ids[run], at=step):
            found = gradient_step(run, row)
            standing.gradient_steps[found.minibatch] = found
    for key in asked:
        for digest, received_at in _SHARD_AT.rows(connection, **dict(zip(_KEY, _row_key(ids, key), strict=True))):
            ledger.steps[key.run, key.step].shards[key] = digest, received_at
    return ledger


_KEY: Final = tuple(column.name for column in shards.primary_key)
_STEPS_AT: Final = Statement(
    select(*LEDGER_COLUMNS)
    .where(steps.c.run_id == bindparam("run", required=True), steps.c.step == bindparam("at", required=True))
    .where(~steps.c.superseded)
)
_SHARD_AT: Final = Statement(
    select(shards.c.digest, shards.c.received_at).where(
        *(column == bindparam(column.name, required=True) for column in shards.primary_key)
    )
)
_ENTER: Final = Statement(insert(shards).values({column.name: bindparam(column.name) for column in shards.c}))
_RUN_SEEN: Final = Statement(
    update(runs)
    .where(runs.c.id == bindparam("key", required=True))
    .values({name: bindparam(name, required=True) for name in ("last_batch_at", "finished_at", "revision")})
)


def _write(
    connection: Connection,
    held: Mapping[str, HeldRun],
    ledger: Ledger,
    blobs: Mapping[ShardKey, bytes],
    recent: Recent,
    names: Ids,
    failed: Failed,
) -> Mapping[int, Merged]:
    if not ledger.accepted:
        return {}
    ids = {name: run.id for name, run in held.items()}
    records = ledger.accepted.values()
    touched = list(ledger.touched.values())
    arrived: dict[tuple[str, int, int, int], list[tuple[ShardRecord, bytes]]] = {}
    for record in sorted(records, key=lambda record: record.key.shard):
        of_step = record.key.run, record.key.step, record.key.minibatch, record.key.attempt
        arrived.setdefault(of_step, []).append((record, blobs[record.key]))

    def stored_of(step: GradientStep) -> Shards:
        standing = ledger.steps[step.run, step.step]
        if not standing.whole:
            return shards_of(connection, (ids[step.run], step.step, step.minibatch, step.attempt))
        wanted = (step.minibatch, step.attempt)
        found = [(key.shard, of) for key, of in standing.shards.items() if (key.minibatch, key.attempt) == wanted]
        return sorted(found)

    # First those that are one shard: where the step keeps its summary, the shard needs none of its own.
    whole = [step for step in touched if step.due and step.shards == 1]
    merged = merge_at_once(connection, ids, whole, arrived, recent, stored_of, failed)
    alone = {record.key for record in records if id(ledger.step_of[record.key]) in merged}
    rows = [_shard_row(ids, record, b"" if record.key in alone else blobs[record.key]) for record in records]
    _ENTER.run(connection, *rows)
    for record in records:
        if record.shards > 1:
            recent.put(_step_key(ids, record.key), record)
    others = [step for step in touched if step.due and step.shards > 1]
    merged |= merge_at_once(connection, ids, others, arrived, recent, stored_of, failed)
    for step in others:
        if id(step) in merged and step.received == step.shards:
            recent.drop((ids[step.run], step.step, step.minibatch, step.attempt))
    save_steps(connection, held, touched, merged, names)
    return merged


def _keep_runs(
    connection: Connection,
    held: Mapping[str, HeldRun],
    ledger: Ledger,
    known: Mapping[str, RunMemory],
    memories: Memories,
    now: float,
) -> None:
    """The rows of the runs that have new shards, and what is known of all of them."""
    # The clock may have been set back since the batch before.
    latest: dict[str, float] = {}
    for record in ledger.accepted.values():
        before = latest.get(record.key.run, min(held[record.key.run].last_batch_at or 0.0, now))
        latest[record.key.run] = max(before, record.received_at)
    for name, memory in known.items():
        revision, last_batch_at = held[name].revision, held[name].last_batch_at
        if name in latest:
            revision, last_batch_at = new_revision(), latest[name]
            seen = {"last_batch_at": last_batch_at, "finished_at": held[name].finished_at, "revision": revision}
            _RUN_SEEN.run(connection, {"key": memory.run, **seen})
        if revision is not None:
            memories.put_back(memory, (revision, last_batch_at))


def _step_key(ids: Mapping[str, int], key: ShardKey) -> StepKey:
    return ids[key.run], key.step, key.minibatch, key.attempt


def _row_key(ids: Mapping[str, int], key: ShardKey) -> tuple[int, ...]:
    """The key in the order of the primary key of `shards`."""
    return *_step_key(ids, key), key.shard


def _stored_summary(connection: Connection, row_key: tuple[int, ...]) -> StepSummary | None:
    """The summary of a shard: its own, or that of the step that it is; None where neither is kept any more."""
    query = select(shards.c.summary, shards.c.shards).where(tuple_(*shards.primary_key) == row_key)
    blob, count = connection.execute(query).one()
    if not blob and count == 1:
        step_key = (steps.c.run_id, steps.c.step, steps.c.minibatch, steps.c.attempt)
        blob = connection.execute(select(steps.c.summary).where(tuple_(*step_key) == row_key[:4])).scalar()
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
