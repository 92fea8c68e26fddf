"""Runs as readers see them: with the last step, the state and the verdict, and how they went.

Every function takes the caller's connection.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from sqlalchemy import Connection, Select, select

from offpolicy_monitor.store.rows.held import unknown_run
from offpolicy_monitor.store.rows.overviews import DRAWN, Overview, Overviews
from offpolicy_monitor.store.rows.runs import silent_after, state_of, usual_seconds
from offpolicy_monitor.store.rows.tables import ACTIVE, PENDING, RESOLVED, alerts, runs, steps
from offpolicy_monitor.store.rows.thinned import thinned
from offpolicy_monitor.store.rows.verdicts import verdict
from offpolicy_monitor.timestamps import timestamp

#: Values of a spark.
SPARK: Final = 48


@dataclass(frozen=True)
class RunView:
    """A run as it is answered, and what a sentence about it is said of.

    `open_alerts` are its alerts that are not over, of a finished run those that were not when it finished; `overrides`
    its own terms by rule; times in unix seconds.
    """

    shown: dict[str, Any]
    id: int
    now: float
    last_batch_at: float
    overview: Overview
    open_alerts: Sequence[Mapping[str, Any]]
    overrides: Mapping[str, Mapping[str, Any]]


def view_runs(connection: Connection, overviews: Overviews, ids: Sequence[int], now: float) -> list[RunView]:
    """Runs by their ids, in this order; those that are gone are left out."""
    rows = {row.id: row for row in connection.execute(_with_last_step().where(runs.c.id.in_(ids)))}
    found = [rows[run] for run in ids if run in rows]
    seen = overviews.read(connection, found, now)
    open_ = _open_alerts(connection, found)
    return [_view(connection, row, seen[row.id], open_[row.id], now) for row in found]


def view_run(connection: Connection, overviews: Overviews, name: str, now: float) -> RunView:
    """One run with its own settings (methods None: the default ones); Refusal 404 where there is none."""
    row = connection.execute(_with_last_step().where(runs.c.name == name)).one_or_none()
    if row is None:
        raise unknown_run(name)
    view = _view(
        connection, row, overviews.read(connection, [row], now)[row.id], _open_alerts(connection, [row])[row.id], now
    )
    usual = usual_seconds(connection, row.id, view.overview.step_seconds, now)
    view.shown.update(
        methods=row.methods,
        correction=row.correction,
        length_cap=row.length_cap,
        alerts=row.overrides or {},
        median_step_seconds=usual,
        silent_after=silent_after(usual),
    )
    return view


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


def _open_alerts(connection: Connection, rows: Sequence[Any]) -> dict[int, list[Mapping[str, Any]]]:
    """By run id, in the order they began."""
    found: dict[int, list[Mapping[str, Any]]] = {row.id: [] for row in rows}
    if not rows:
        return found
    is_open = alerts.c.state.in_((PENDING, ACTIVE))
    ended = (alerts.c.state == RESOLVED) & (alerts.c.resolved_at >= runs.c.finished_at)
    query = (
        select(alerts).join(runs, runs.c.id == alerts.c.run_id).where(alerts.c.run_id.in_(list(found)), is_open | ended)
    )
    for row in connection.execute(query.order_by(alerts.c.id)).mappings():
        found[row["run_id"]].append(dict(row))
    return found


def _view(
    connection: Connection, row: Any, overview: Overview, open_alerts: Sequence[Mapping[str, Any]], now: float
) -> RunView:
    usual = overview.step_seconds
    shown = {
        "run": row.name,
        "profile": row.profile,
        "labels": row.labels,
        "state": state_of(connection, row, usual, now),
        "verdict": verdict(open_alerts),
        "last_step": row.step,
        "last_minibatch": row.minibatch,
        "attempt": row.attempt,
        "policy_version": row.policy_version,
        "created_at": timestamp(row.created_at),
        "last_batch_at": timestamp(None if row.last_batch_at is None else min(row.last_batch_at, now)),
        "steps": len(overview.drawn.steps),
        "steps_per_minute": 60 / usual if usual else None,
        "active_alerts": sum(alert["state"] == ACTIVE for alert in open_alerts),
        "spark": spark(overview),
    }
    last_batch_at = min(row.last_batch_at or row.created_at, now)
    return RunView(shown, row.id, now, last_batch_at, overview, open_alerts, row.overrides or {})


def spark(overview: Overview) -> dict[str, Any] | None:
    """A figure over all steps in at most SPARK values, the least and the largest of each stretch; None without any."""
    for path, values in zip(DRAWN, overview.drawn.figures, strict=True):
        if not np.isnan(values).all():
            chosen = values[thinned(values[None], SPARK)].tolist()
            return {"field": path, "values": [None if value != value else value for value in chosen]}
    return None
