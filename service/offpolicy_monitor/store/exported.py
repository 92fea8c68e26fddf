"""What /metrics shows of each run: its latest gradient step that counts, whatever arrived since.

Latest by attempt, then step, then minibatch: an older step that is late never moves a gauge back, a new attempt does.
A superseded step stays until its successor counts.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sqlalchemy import Connection, select

from offpolicy_monitor.store.codec import unpack
from offpolicy_monitor.store.tables import OPEN, runs, steps


@dataclass(frozen=True)
class ExportedRun:
    """One run; from `step` on None where no step of it counts yet. `last_batch` in unix seconds, `coverage` in 0..1."""

    run: str
    profile: str
    last_batch: float
    step: int | None
    minibatch: int | None
    attempt: int | None
    policy_version: int | None
    coverage: float | None
    stored_figures: bytes | None

    @cached_property
    def figures(self) -> dict[str, Any]:
        """The merged figures of the step; empty where none counts yet."""
        return {} if self.stored_figures is None else unpack(self.stored_figures)


def read_exported(connection: Connection, limit: int, active_since: float) -> list[ExportedRun]:
    """The `limit` most recently active runs with a batch since `active_since` (unix seconds)."""
    latest = (
        select(steps.c.id)
        .where(steps.c.run_id == runs.c.id, steps.c.state != OPEN)
        .order_by(steps.c.attempt.desc(), steps.c.step.desc(), steps.c.minibatch.desc())
        .limit(1)
        .correlate(runs)
        .scalar_subquery()
    )
    of_run = (runs.c.name, runs.c.profile, runs.c.last_batch_at)
    of_step = (steps.c.step, steps.c.minibatch, steps.c.attempt, steps.c.policy_version)
    query = (
        select(*of_run, *of_step, steps.c.received, steps.c.shards, steps.c.figures)
        .select_from(runs.outerjoin(steps, steps.c.id == latest))
        .where(runs.c.last_batch_at >= active_since)
        .order_by(runs.c.last_batch_at.desc(), runs.c.id)
        .limit(limit)
    )
    return [_exported(row) for row in connection.execute(query)]


def _exported(row: Any) -> ExportedRun:
    return ExportedRun(
        run=row.name,
        profile=row.profile,
        last_batch=row.last_batch_at,
        step=row.step,
        minibatch=row.minibatch,
        attempt=row.attempt,
        policy_version=row.policy_version,
        coverage=row.received / row.shards if row.shards else None,
        stored_figures=row.figures,
    )
