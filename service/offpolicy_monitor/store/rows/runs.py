"""Runs by name: their ids, their state, and their few settings.

Every function takes the caller's connection.
"""

from collections.abc import Collection, Mapping
from typing import Any, Final

from sqlalchemy import Connection, select, update

from offpolicy_monitor.store.rows.held import hold_run, unknown_run
from offpolicy_monitor.store.rows.step_times import beginnings, median_step_seconds
from offpolicy_monitor.store.rows.tables import runs

#: A run is silent after this many times its usual step time without a batch, but never before LEAST_SILENCE seconds.
SILENT_STEPS: Final = 3
LEAST_SILENCE: Final = 600.0


def read_methods(connection: Connection, name: str) -> list[dict[str, Any]] | None:
    """The method rows chosen for a run; None where none were chosen, or where there is no such run yet."""
    chosen: list[dict[str, Any]] | None = connection.execute(
        select(runs.c.methods).where(runs.c.name == name)
    ).scalar_one_or_none()
    return chosen


def run_id(connection: Connection, name: str) -> int:
    """The id of a run; Refusal 404 where there is none."""
    found: int | None = connection.execute(select(runs.c.id).where(runs.c.name == name)).scalar_one_or_none()
    if found is None:
        raise unknown_run(name)
    return found


def revisions(connection: Connection, ids: Collection[int]) -> dict[int, tuple[str, int | None]]:
    """By id, the name and the revision of those of these runs that there are."""
    rows = connection.execute(select(runs.c.id, runs.c.name, runs.c.revision).where(runs.c.id.in_(ids)))
    return {row.id: (row.name, row.revision) for row in rows}


def update_run(connection: Connection, name: str, values: Mapping[str, Any]) -> None:
    """Change columns of a run; Refusal 404 where there is none."""
    run = hold_run(connection, name)
    if values:
        connection.execute(update(runs).where(runs.c.id == run.id).values(**values))


def state_of(connection: Connection, row: Any, step_seconds: float | None, now: float) -> str:
    """`live`, `silent` or `finished`; the row has id, created_at, last_batch_at and finished_at of a run."""
    if row.finished_at is not None:
        return "finished"
    silence = now - (row.last_batch_at or row.created_at)
    if silence <= LEAST_SILENCE:
        return "live"
    return "live" if silence <= silent_after(usual_seconds(connection, row.id, step_seconds, now)) else "silent"


def usual_seconds(connection: Connection, run: int, judged: float | None, now: float) -> float | None:
    """Seconds from step to step, as the run's last judgement has them, or as they are where it was not judged."""
    return median_step_seconds(beginnings(connection, run), now) if judged is None else judged


def silent_after(usual: float | None) -> float:
    """Seconds without a batch after which a run is silent."""
    return max(LEAST_SILENCE, SILENT_STEPS * (usual or 0.0))
