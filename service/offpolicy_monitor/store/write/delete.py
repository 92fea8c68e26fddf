"""Deletes runs: gone for every reader at once, its rows in portions, so that shards never wait long for it.

A deleted run keeps its row, under a name that no client can use, until everything else of it is gone: what a crash
interrupts goes on after the next start. Every function takes the caller's connection.
"""

from collections.abc import Sequence
from typing import Any, Final

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


class Deletion:
    """Deletes rows of deleted runs, a portion a time, one table of a run after another.

    It goes on where the portion before ended, since PostgreSQL walks over what is deleted until it is vacuumed. For one
    thread, and to be made anew after a failure: what is left behind then would go with the run's row, all at once.
    """

    def __init__(self) -> None:
        self._run: int | None = None
        self._left: list[Table] = []
        self._after: Sequence[Any] | None = None

    def portion(self, connection: Connection) -> bool:
        """Delete some rows of one deleted run; whether there may be more."""
        # Of two processes that meet in PostgreSQL one deletes a run, the other the next.
        query = select(runs.c.id).where(runs.c.deleted.is_not(None)).order_by(runs.c.id).limit(1)
        run = connection.execute(query.with_for_update(skip_locked=True)).scalar()
        if run is None:
            return False
        if run != self._run:
            self._run, self._left, self._after = run, list(_IN_PORTIONS), None
        if not self._delete_some(connection, run):
            connection.execute(delete(runs).where(runs.c.id == run))
            self._run = None
        return True

    def _delete_some(self, connection: Connection, run: int) -> bool:
        """Delete the next rows of the first table that has some; whether one has."""
        while self._left:
            table = self._left[0]
            key, there = _IN_PORTIONS[table], [table.c.run_id == run]
            if self._after is not None:
                there.append(tuple_(*key) > tuple_(*self._after))
            last = connection.execute(select(*key).where(*there).order_by(*key).limit(1).offset(PORTION - 1)).first()
            up_to = true() if last is None else tuple_(*key) <= tuple_(*last)
            gone = connection.execute(delete(table).where(*there, up_to)).rowcount
            self._after = last
            if last is None:
                self._left.pop(0)
            if gone:
                return True
        return False
