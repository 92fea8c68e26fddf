"""Closes steps whose deadline has passed: they count with the shards they have, and later ones are merged in.

Runs in the caller's transaction, a bounded number of steps at a time.
"""

from sqlalchemy import Connection, select

from offpolicy_monitor.store.ingest import LEDGER_COLUMNS, gradient_step
from offpolicy_monitor.store.judging import Judging
from offpolicy_monitor.store.locking import hold_ids
from offpolicy_monitor.store.saving import save_steps
from offpolicy_monitor.store.tables import OPEN, steps

#: Steps closed in one transaction, so that shards never wait long for it.
MOST = 64


def close_overdue(connection: Connection, deadline: float, judging: Judging, now: float) -> int:
    """Close open steps whose first shard came at `deadline` (unix seconds) or before; at most MOST of them."""
    overdue = (steps.c.state == OPEN) & (steps.c.first_received_at <= deadline)
    run_ids = connection.execute(select(steps.c.run_id).where(overdue).distinct()).scalars().all()
    if not run_ids:
        return 0
    held = hold_ids(connection, run_ids)
    names = {run.id: name for name, run in held.items()}
    query = select(*LEDGER_COLUMNS).where(overdue & steps.c.run_id.in_(names))
    rows = connection.execute(query.order_by(steps.c.first_received_at).limit(MOST)).all()
    due = [gradient_step(names[row.run_id], row) for row in rows]
    for step in due:
        step.close()
    save_steps(connection, held, due)
    judging.runs(connection, [held[name] for name in sorted({step.run for step in due})], now)
    return len(due)
