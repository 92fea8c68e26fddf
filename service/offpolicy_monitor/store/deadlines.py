"""Closes steps whose deadline has passed: they count with the shards they have, and later ones are merged in.

Runs in the caller's transaction, a bounded number of steps at a time.
"""

from sqlalchemy import Connection, select

from offpolicy_monitor.store.ingest import LEDGER_COLUMNS, gradient_step
from offpolicy_monitor.store.saving import save_steps
from offpolicy_monitor.store.tables import OPEN, runs, steps

#: Steps closed in one transaction, so that shards never wait long for it.
MOST = 64


def close_overdue(connection: Connection, deadline: float) -> int:
    """Close open steps whose first shard came at `deadline` (unix seconds) or before; at most MOST of them."""
    overdue = (steps.c.state == OPEN) & (steps.c.first_received_at <= deadline)
    run_ids = connection.execute(select(steps.c.run_id).where(overdue).distinct()).scalars().all()
    if not run_ids:
        return 0
    held = select(runs.c.id, runs.c.name).where(runs.c.id.in_(run_ids)).order_by(runs.c.name).with_for_update()
    names = {row.id: row.name for row in connection.execute(held)}
    query = select(*LEDGER_COLUMNS).where(overdue & steps.c.run_id.in_(names))
    rows = connection.execute(query.order_by(steps.c.first_received_at).limit(MOST)).all()
    due = [gradient_step(names[row.run_id], row) for row in rows]
    for step in due:
        step.close()
    save_steps(connection, {name: run_id for run_id, name in names.items()}, due)
    return len(due)
