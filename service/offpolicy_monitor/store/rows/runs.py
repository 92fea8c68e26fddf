"""Runs as readers see them: newest first, with the last step, the state and the verdict; and their few settings.

Every function takes the caller's connection.
"""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, Select, select, update

from offpolicy_monitor.store.rows.cursors import Page, cut, decode_cursor, encode_cursor
from offpolicy_monitor.store.rows.held import hold_run, unknown_run
from offpolicy_monitor.store.rows.step_times import beginnings, median_step_seconds
from offpolicy_monitor.store.rows.tables import runs, steps
from offpolicy_monitor.store.rows.verdicts import verdicts_of
from offpolicy_monitor.timestamps import timestamp

#: A run is silent after this many times its usual step time without a batch, but never before LEAST_SILENCE seconds.
SILENT_STEPS = 3
LEAST_SILENCE = 600.0


def list_runs(connection: Connection, limit: int, cursor: str | None, now: float) -> Page:
    """Runs by the time they were first seen, newest first."""
    query = _with_last_step().where(runs.c.deleted.is_(None)).order_by(runs.c.id.desc()).limit(limit + 1)
    if cursor is not None:
        query = query.where(runs.c.id < decode_cursor(cursor, 1)[0])
    rows, more = cut(connection.execute(query).all(), limit)
    verdicts = verdicts_of(connection, [row.id for row in rows])
    listed = [_run(connection, row, verdicts[row.id], now) for row in rows]
    return Page(listed, encode_cursor(rows[-1].id) if more else None)


def read_run(connection: Connection, name: str, now: float) -> dict[str, Any]:
    """One run with its own settings (methods None: the default ones); Refusal 404 where there is none."""
    row = connection.execute(_with_last_step().where(runs.c.name == name)).one_or_none()
    if row is None:
        raise unknown_run(name)
    found = _run(connection, row, verdicts_of(connection, [row.id])[row.id], now)
    return {**found, "methods": row.methods, "correction": row.correction, "alerts": row.overrides or {}}


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


def update_run(connection: Connection, name: str, values: Mapping[str, Any]) -> None:
    """Change columns of a run; Refusal 404 where there is none."""
    run = hold_run(connection, name)
    if values:
        connection.execute(update(runs).where(runs.c.id == run.id).values(**values))


def _with_last_step() -> Select[Any]:
    """Runs, each with the last gradient step seen of it, by attempt before step."""
    newest = (
        select(steps.c.id)
        .where(steps.c.run_id == runs.c.id, ~steps.c.superseded)
        .order_by(steps.c.attempt.desc(), steps.c.step.desc(), steps.c.minibatch.desc())
        .limit(1)
        .correlate(runs)
        .scalar_subquery()
    )
    last = (steps.c.step, steps.c.minibatch, steps.c.attempt, steps.c.policy_version)
    return select(runs, *last).select_from(runs.outerjoin(steps, steps.c.id == newest))


def _run(connection: Connection, row: Any, verdict: str, now: float) -> dict[str, Any]:
    return {
        "run": row.name,
        "profile": row.profile,
        "labels": row.labels,
        "state": _state(connection, row, now),
        "verdict": verdict,
        "last_step": row.step,
        "last_minibatch": row.minibatch,
        "attempt": row.attempt,
        "policy_version": row.policy_version,
        "created_at": timestamp(row.created_at),
        "last_batch_at": timestamp(None if row.last_batch_at is None else min(row.last_batch_at, now)),
    }


def _state(connection: Connection, row: Any, now: float) -> str:
    if row.finished_at is not None:
        return "finished"
    silence = now - (row.last_batch_at or row.created_at)
    if silence <= LEAST_SILENCE:
        return "live"
    usual = median_step_seconds(beginnings(connection, row.id), now) or 0.0
    return "live" if silence <= SILENT_STEPS * usual else "silent"
