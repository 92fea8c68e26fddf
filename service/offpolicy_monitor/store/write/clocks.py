"""Times that lie ahead of the clock, since it was set back: brought to now, so that ages count from there on.

What was received while the clock was ahead would else be young for as long: a run would count as live, a step would
stay open. Every function takes the caller's connection; times are unix seconds.
"""

from typing import Any, Final

from sqlalchemy import Connection, Select, Update, select, tuple_, update

from offpolicy_monitor.store.rows.held import hold_ids
from offpolicy_monitor.store.rows.tables import UNMERGED, runs, steps, waiting_steps

#: Rows of one table that are changed in one transaction.
PORTION: Final = 100


def any_ahead(connection: Connection, now: float) -> bool:
    """Whether a time that ages are counted from lies ahead of `now`."""
    return any(connection.execute(query.limit(1)).first() is not None for query, _ in _ahead(now))


def bring_to_now(connection: Connection, now: float) -> int:
    """Bring some of these times to `now`; answers how many, 0 where none is left."""
    changed = 0
    for query, statement in _ahead(now):
        found = [tuple(row) for row in connection.execute(query.limit(PORTION))]
        hold_ids(connection, {run for run, *_ in found})
        key = tuple_(*query.selected_columns)
        changed += connection.execute(statement.where(key.in_(found))).rowcount if found else 0
    return changed


def _ahead(now: float) -> "list[tuple[Select[*tuple[Any, ...]], Update]]":
    """The rows whose time lies ahead, by their runs and keys, and what they are set to."""
    return [
        (select(runs.c.id).where(runs.c.last_batch_at > now), update(runs).values(last_batch_at=now)),
        (
            select(steps.c.run_id, steps.c.id).where(UNMERGED, steps.c.first_received_at > now),
            update(steps).values(first_received_at=now, last_received_at=now),
        ),
        (
            select(waiting_steps.c.run_id, waiting_steps.c.step).where(waiting_steps.c.since > now),
            update(waiting_steps).values(since=now),
        ),
    ]
