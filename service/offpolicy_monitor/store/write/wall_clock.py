"""Judges runs by the wall clock, some hundred at a time: looks at all of them, and holds only those that change.

So neither the number of runs nor the length of a look is felt by the shards that come meanwhile. Every function takes
the caller's connection.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, select

from offpolicy_monitor.store.rows.alerts import EPISODE, end_all, open_alerts, save
from offpolicy_monitor.store.rows.held import HeldRun, hold_ids, look_at
from offpolicy_monitor.store.rows.step_times import incomplete_since
from offpolicy_monitor.store.rows.tables import ACTIVE, PENDING, alerts, judgements, runs
from offpolicy_monitor.store.write.judge import Judge

#: Runs looked at in one reading, and runs changed in one writing transaction.
PAGE: Final = 500
MOST: Final = 100


@dataclass(frozen=True)
class Moment:
    """Now, and after how many seconds of silence a run has left."""

    now: float
    expiry: float


def changing(connection: Connection, judge: Judge, moment: Moment, after: int) -> tuple[list[int], int | None]:
    """Of the first PAGE active runs whose id is beyond `after`: those for which something would change, and the last.

    The last is None where there are no more.
    """
    active = (runs.c.finished_at.is_(None), runs.c.last_batch_at >= moment.now - moment.expiry)
    query = select(runs.c.id).where(*active, runs.c.id > after).order_by(runs.c.id).limit(PAGE)
    page = connection.execute(query).scalars().all()
    found = _judged(connection, judge, moment, look_at(connection, page), runs.c.id.in_(page))
    return list(found), page[-1] if len(page) == PAGE else None


def change(connection: Connection, judge: Judge, moment: Moment, ids: Sequence[int]) -> int:
    """Judge these runs, MOST at most, and keep what changes; answers for how many something did."""
    held = [run for run in hold_ids(connection, ids).values() if run.finished_at is None]
    found = _judged(connection, judge, moment, held, runs.c.id.in_(ids))
    for run, (before, after) in found.items():
        save(connection, run, before, after, moment.now)
    return len(found)


def end_expired(connection: Connection, moment: Moment) -> int:
    """Resolve the alerts of runs that have left, MOST of them at most; answers of how many."""
    query = select(alerts.c.run_id).join(runs, runs.c.id == alerts.c.run_id).distinct().limit(MOST)
    silent = runs.c.last_batch_at < moment.now - moment.expiry
    found = connection.scalars(query.where(alerts.c.state.in_((PENDING, ACTIVE)), silent)).all()
    held = hold_ids(connection, found).values()
    for run in held:
        end_all(connection, run.id, moment.now)
    return len(held)


def _judged(
    connection: Connection, judge: Judge, moment: Moment, candidates: Iterable[HeldRun], among: ColumnElement[bool]
) -> dict[int, tuple[Sequence[Mapping[str, Any]], Sequence[Mapping[str, Any]]]]:
    """The open alerts of runs before and after, by run id, where they are not the same."""
    now, before = moment.now, open_alerts(connection, [run.id for run in candidates])
    waiting = incomplete_since(connection, now - moment.expiry, among)
    query = select(judgements.c.run_id, judgements.c.step_seconds).join(runs).where(among)
    usual = {run: seconds for run, seconds in connection.execute(query)}
    found: dict[int, tuple[Sequence[Mapping[str, Any]], Sequence[Mapping[str, Any]]]] = {}
    for run in candidates:
        if run.last_batch_at is None:
            continue
        open_for = now - waiting[run.id] if run.id in waiting else None
        after = judge.timing(run, usual.get(run.id), now - run.last_batch_at, open_for, before[run.id])
        if after != [{name: row[name] for name in EPISODE} for row in before[run.id]]:
            found[run.id] = (before[run.id], after)
    return found
