"""Deletes runs: gone for every reader at once, its rows in portions, so that shards never wait long for it.

A deleted run keeps its row, under a name that no client can use, until everything else of it is gone: what a crash
interrupts goes on after the next start. Every function takes the caller's connection.
"""

from typing import Final

from sqlalchemy import Connection, Table, delete, select, true, tuple_, update

from offpolicy_monitor.store.rows.held import hold_run
from offpolicy_monitor.store.rows.tables import alerts, judgements, metadata, runs

#: Rows of one table that go in one transaction.
PORTION: Final = 100
# Small, and looked for by readers that know no runs.
_AT_ONCE: Final = (alerts, judgements)
# Tables that grow with the run, and the columns that, beside the run, number their rows. `metrics` go with their steps.
_IN_PORTIONS: Final = {
    table: [column for column in table.primary_key if column is not table.c.run_id]
    if table.c.run_id.primary_key
    else [table.c[name] for name in ("step", "minibatch", "attempt", "id") if name in table.c]
    for table in reversed(metadata.sorted_tables)
    if {"run_id", "step"} <= set(table.c.keys()) and table not in (alerts, judgements)
}


def mark_deleted(connection: Connection, name: str) -> None:
    """Make a run vanish, and free its name; Refusal 404 where there is none."""
    run = hold_run(connection, name)
    for table in _AT_ONCE:
        connection.execute(delete(table).where(table.c.run_id == run.id))
    gone = {"name": f"#{run.id}", "deleted": True, "last_batch_at": None, "finished_at": 0.0}
    connection.execute(update(runs).where(runs.c.id == run.id).values(gone))


def delete_portion(connection: Connection) -> bool:
    """Delete some rows of one deleted run; whether there may be more."""
    # Of two processes that meet in PostgreSQL one deletes a run, the other the next.
    query = select(runs.c.id).where(runs.c.deleted.is_not(None)).order_by(runs.c.id).limit(1)
    run = connection.execute(query.with_for_update(skip_locked=True)).scalar()
    if run is None:
        return False
    if not any(_delete_some(connection, table, run) for table in _IN_PORTIONS):
        connection.execute(delete(runs).where(runs.c.id == run))
    return True


def _delete_some(connection: Connection, table: Table, run: int) -> bool:
    """Delete the first rows of a table of the run; whether there were any."""
    key, of_run = _IN_PORTIONS[table], table.c.run_id == run
    last = connection.execute(select(*key).where(of_run).order_by(*key).limit(1).offset(PORTION - 1)).one_or_none()
    up_to = true() if last is None else tuple_(*key) <= tuple_(*last)
    return connection.execute(delete(table).where(of_run, up_to)).rowcount > 0
