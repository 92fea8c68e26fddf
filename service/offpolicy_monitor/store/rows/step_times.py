"""How fast a run steps, and how long its oldest incomplete step has waited: what rules on the wall clock compare.

Every function takes the caller's connection. Times are unix seconds.
"""

from collections.abc import Mapping
from itertools import pairwise
from statistics import median
from typing import Final

from sqlalchemy import ColumnElement, Connection, bindparam, func, select, true

from offpolicy_monitor.store.rows.statement import Statement
from offpolicy_monitor.store.rows.tables import judgements, runs, steps

#: Steps over which the usual step time is taken.
RECENT_STEPS = 32
#: A step that lacks shards and is older than this many steps is history, and nobody waits for it any more.
AWAITED_STEPS = 8


#: Steps whose beginnings tell it.
LOOKED_BACK_ON: Final = RECENT_STEPS + 1

_BEGINNINGS: Final = Statement(
    select(steps.c.step, func.min(steps.c.first_received_at))
    .where(steps.c.run_id == bindparam("run", required=True), ~steps.c.superseded)
    .group_by(steps.c.step)
    .order_by(steps.c.step.desc())
    .limit(LOOKED_BACK_ON)
)


def beginnings(connection: Connection, run: int) -> dict[int, float]:
    """When the first shard of each of the newest training steps of a run came, unix seconds."""
    return {step: began for step, began in _BEGINNINGS.rows(connection, run=run)}


def median_step_seconds(begun: Mapping[int, float], now: float) -> float | None:
    """Seconds from one step's first shard to the next one's, over the most recent steps; None with fewer than two.

    Steps that began after `now`, while the clock was ahead, tell nothing.
    """
    newest = sorted(begun)[-LOOKED_BACK_ON:]
    times = sorted([began for step in newest if (began := begun[step]) <= now])
    return median([later - earlier for earlier, later in pairwise(times)]) if len(times) > 1 else None


def incomplete_since(
    connection: Connection, active_since: float, among: ColumnElement[bool] | None = None
) -> dict[int, float]:
    """When the first shard of each run's oldest awaited step came, by run id; runs that lack nothing are left out.

    `among` says of which runs, all if not given.
    """
    awaited = steps.c.step > func.coalesce(judgements.c.step, -1) - AWAITED_STEPS
    lacking = ~steps.c.superseded & (steps.c.received < steps.c.shards)
    # Run by run: joined, PostgreSQL would read all steps, since it expects that a third of them are newer than any.
    since = select(func.min(steps.c.first_received_at)).where(steps.c.run_id == runs.c.id, awaited, lacking)
    query = (
        select(runs.c.id, since.correlate(runs, judgements).scalar_subquery())
        .select_from(runs.outerjoin(judgements))
        .where(runs.c.last_batch_at >= active_since, true() if among is None else among)
    )
    return {run: since for run, since in connection.execute(query) if since is not None}
