"""What /metrics shows of each run: its latest gradient step that counts, whatever arrived since.

Latest by attempt, then step, then minibatch: an older step that is late never moves a gauge back, a new attempt does.
A superseded step stays until its successor counts.
"""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, select

from offpolicy_monitor.store.rows import derived
from offpolicy_monitor.store.rows.codec import unpack
from offpolicy_monitor.store.rows.derived import Figures
from offpolicy_monitor.store.rows.step_times import incomplete_since
from offpolicy_monitor.store.rows.tables import OPEN, judgements, runs, steps


@dataclass(frozen=True)
class ExportedRun:
    """One run; from `step` to `stored_states` None where no step of it counts yet. `coverage` in 0..1.

    `last_batch` and `open_since` (the first shard of the oldest step that still lacks some) in unix seconds;
    `step_seconds` is the usual time from step to step; `overrides` are the run's own terms by rule. What is stored is
    read when it is asked for and not kept here: of two hundred runs it would be as large as the process.
    """

    run: str
    profile: str
    last_batch: float
    step: int | None
    minibatch: int | None
    attempt: int | None
    policy_version: int | None
    coverage: float | None
    stored_figures: Figures
    stored_states: bytes | None
    step_seconds: float | None
    open_since: float | None
    finished: bool
    overrides: dict[str, Any] | None

    @property
    def figures(self) -> dict[str, Any]:
        """The merged figures of the step; empty where none counts yet, and where they cannot be read."""
        return self.stored_figures.shown(self.step)

    @property
    def states(self) -> list[dict[str, Any]]:
        """What each rule said when the run was judged last; empty before that."""
        return [] if self.stored_states is None else unpack(self.stored_states)["states"]


def read_exported(connection: Connection, limit: int, active_since: float, now: float) -> list[ExportedRun]:
    """The `limit` most recently active runs with a batch since `active_since`; no time is after `now`, unix seconds."""
    latest = (
        select(steps.c.id)
        .where(steps.c.run_id == runs.c.id, steps.c.state != OPEN)
        .order_by(steps.c.attempt.desc(), steps.c.step.desc(), steps.c.minibatch.desc())
        .limit(1)
        .correlate(runs)
        .scalar_subquery()
    )
    of_run = (runs.c.id, runs.c.name, runs.c.profile, runs.c.last_batch_at, runs.c.finished_at, runs.c.overrides)
    of_step = (steps.c.step, steps.c.minibatch, steps.c.attempt, steps.c.policy_version)
    # Chosen before anything of theirs is looked for, which would else be done of a hundred thousand.
    chosen = (
        select(runs.c.id)
        .where(runs.c.last_batch_at >= active_since)
        .order_by(runs.c.last_batch_at.desc(), runs.c.id)
        .limit(limit)
    )
    query = (
        select(*of_run, *of_step, steps.c.merged, steps.c.shards, *derived.COLUMNS)
        .add_columns(judgements.c.states, judgements.c.step_seconds)
        .select_from(runs.outerjoin(steps, steps.c.id == latest).outerjoin(judgements))
        .where(runs.c.id.in_(chosen))
        .order_by(runs.c.last_batch_at.desc(), runs.c.id)
    )
    rows = connection.execute(query).all()
    waiting = incomplete_since(connection, active_since, runs.c.id.in_([row.id for row in rows]))
    figures = derived.of_rows(connection, rows)
    return [_exported(row, found, waiting.get(row.id), now) for row, found in zip(rows, figures, strict=True)]


def _exported(row: Any, figures: Figures, open_since: float | None, now: float) -> ExportedRun:
    return ExportedRun(
        run=row.name,
        profile=row.profile,
        last_batch=min(row.last_batch_at, now),
        step=row.step,
        minibatch=row.minibatch,
        attempt=row.attempt,
        policy_version=row.policy_version,
        coverage=row.merged / row.shards if row.shards else None,
        stored_figures=figures,
        stored_states=row.states,
        step_seconds=row.step_seconds,
        open_since=None if open_since is None else min(open_since, now),
        finished=row.finished_at is not None,
        overrides=row.overrides,
    )
