"""Rows of training steps: those that are waited for, and those that were judged, with the figures they were judged by.

Every function takes the caller's connection; the caller holds the runs. What the figures mean is not known here.
"""

import zlib
from array import array
from collections.abc import Collection, Mapping
from typing import Final

from sqlalchemy import Connection, Table, bindparam, delete, select, tuple_

from offpolicy_monitor.store.rows import headlines
from offpolicy_monitor.store.rows.codec import pack, unpack
from offpolicy_monitor.store.rows.gradient_steps import LEDGER_COLUMNS, GradientStep, gradient_step
from offpolicy_monitor.store.rows.statement import Statement, putting
from offpolicy_monitor.store.rows.tables import judged_steps, runs, steps, waiting_steps
from offpolicy_monitor.store.rows.training_step import LATER_STEPS, TrainingStep

#: In place of the figures of a judged step that the rows of its only gradient step have; no figure has such a path.
IN_METRICS: Final = {"in metrics": 1}
_IN_METRICS_PACKED: Final = pack(IN_METRICS)
#: Training steps that tell how many gradient steps a run's have: one that lost some does not mislead.
LEARNED_FROM: Final = 3
#: (run id, step)
RunStep = tuple[int, int]

#: Of a step that is waited for: how many gradient steps it has, if it says so, and when the newest of them began.
Waiting = tuple[int | None, float]

_LEARNED: Final = Statement(
    select(judged_steps.c.minibatches)
    .where(judged_steps.c.run_id == bindparam("run", required=True))
    .order_by(judged_steps.c.attempt.desc(), judged_steps.c.step.desc())
    .limit(LEARNED_FROM)
)
_WAITING: Final = Statement(
    select(waiting_steps.c.step, waiting_steps.c.minibatches, waiting_steps.c.since).where(
        waiting_steps.c.run_id == bindparam("run", required=True)
    )
)
_LATER: Final = Statement(
    select(steps.c.step)
    .where(steps.c.run_id == bindparam("run", required=True), steps.c.step > bindparam("after", required=True))
    .where(steps.c.attempt >= bindparam("since", required=True), ~steps.c.superseded)
    .distinct()
    .limit(LATER_STEPS)
)


def load(connection: Connection, names: Mapping[int, str], keys: Collection[RunStep]) -> list[TrainingStep]:
    """The training steps at these keys, under the attempt that stands; `names` are the runs' by id."""
    if not keys:
        return []
    at = tuple_(steps.c.run_id, steps.c.step).in_(keys) & ~steps.c.superseded
    found: dict[RunStep, list[GradientStep]] = {}
    for row in connection.execute(select(*LEDGER_COLUMNS).where(at)):
        found.setdefault((row.run_id, row.step), []).append(gradient_step(names[row.run_id], row))
    return [TrainingStep.of(gradient_steps) for gradient_steps in found.values()]


def learned(connection: Connection, run: int) -> int | None:
    """How many gradient steps the run's training steps had lately; None before the first was judged."""
    return max((minibatches for (minibatches,) in _LEARNED.rows(connection, run=run)), default=None)


def later(connection: Connection, run: int, step: TrainingStep) -> int:
    """How many later training steps have begun, at most LATER_STEPS; none of an attempt that was given up."""
    return len(_LATER.rows(connection, run=run, after=step.step, since=step.attempt))


def waiting(connection: Connection, run: int) -> dict[int, Waiting]:
    """The steps of a run that are waited for."""
    return {step: (minibatches, since) for step, minibatches, since in _WAITING.rows(connection, run=run)}


def overdue(connection: Connection, deadline: float, limit: int) -> list[RunStep]:
    """Steps whose newest gradient step began at `deadline` (unix seconds) or before, the oldest first."""
    query = select(waiting_steps.c.run_id, waiting_steps.c.step).join(runs).where(runs.c.deleted.is_(None))
    query = query.where(waiting_steps.c.since <= deadline)
    return [(row.run_id, row.step) for row in connection.execute(query.order_by(waiting_steps.c.since).limit(limit))]


def wait(connection: Connection, key: RunStep, waiting: Waiting) -> None:
    """Wait for what a step lacks."""
    run, step = key
    _WAIT.run(connection, {"run_id": run, "step": step, "minibatches": waiting[0], "since": waiting[1]})


def drop_waiting(connection: Connection, key: RunStep) -> None:
    """Wait for this step no longer."""
    _DROP_WAITING.run(connection, {"run": key[0], "at": key[1]})


def keep(
    connection: Connection, key: RunStep, step: TrainingStep, figures: dict[str, float], are_kept: bool = False
) -> int:
    """Keep the figures by path that a step is judged by, instead of earlier ones; answers their checksum.

    `are_kept`: the rows of its only gradient step, the first, have them, and no later shard can change these.
    """
    checksum = zlib.crc32(" ".join(figures).encode(), zlib.crc32(array("d", figures.values())))
    of_step = {"run_id": key[0], "step": key[1], "attempt": step.attempt, "minibatches": step.known}
    _KEEP.run(
        connection, {**of_step, "checksum": checksum, "figures": _IN_METRICS_PACKED if are_kept else pack(figures)}
    )
    return checksum


def figures_of(connection: Connection, run: int, wanted: Collection[int]) -> dict[int, dict[str, float]]:
    """By step, the figures that these steps of a run were judged by."""
    of_run = (judged_steps.c.run_id == run) & judged_steps.c.step.in_(wanted)
    columns = (judged_steps.c.step, judged_steps.c.attempt, judged_steps.c.figures)
    rows = {
        step: (attempt, unpack(packed)) for step, attempt, packed in connection.execute(select(*columns).where(of_run))
    }
    elsewhere = {step: attempt for step, (attempt, figures) in rows.items() if figures == IN_METRICS}
    found = {step: figures for step, (_, figures) in rows.items() if step not in elsewhere}
    return found | (_headlines_of(connection, run, elsewhere) if elsewhere else {})


def _headlines_of(connection: Connection, run: int, attempts: Mapping[int, int]) -> dict[int, dict[str, float]]:
    """By step, the headline figures of its first gradient step under this attempt, and its policy's version."""
    at = (steps.c.run_id == run) & steps.c.step.in_(attempts.keys()) & (steps.c.minibatch == 0)
    columns = (steps.c.id, steps.c.step, steps.c.attempt, steps.c.policy_version)
    rows = [row for row in connection.execute(select(*columns).where(at)) if row.attempt == attempts[row.step]]
    figures = headlines.read(connection, [row.id for row in rows])
    versions = {row.step: {"policy_version": row.policy_version} for row in rows if row.policy_version is not None}
    return {row.step: figures.get(row.id, {}) | versions.get(row.step, {}) for row in rows}


def forget(connection: Connection, keys: Collection[RunStep]) -> None:
    """Another attempt has begun these steps again: what they were judged by counts no longer."""
    rows = [{"run": run, "at": step} for run, step in keys]
    _DROP_WAITING.run(connection, *rows)
    _DROP_JUDGED.run(connection, *rows)


def _dropping(table: Table) -> Statement:
    """One row: a list of keys in one statement would have a bound, and takes longer to put together."""
    of_run = table.c.run_id == bindparam("run", required=True)
    return Statement(delete(table).where(of_run, table.c.step == bindparam("at", required=True)))


_DROP_WAITING, _DROP_JUDGED = _dropping(waiting_steps), _dropping(judged_steps)
_WAIT, _KEEP = putting(waiting_steps), putting(judged_steps)
