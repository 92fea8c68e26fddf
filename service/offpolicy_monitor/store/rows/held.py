"""Holds runs for the length of a transaction, making those that do not exist yet.

Everything that changes the steps of a run holds its row first, so that two processes that meet in PostgreSQL cannot
both miss that a step is complete. On SQLite the one writing transaction is lock enough.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Select, bindparam, select
from sqlalchemy.dialects import postgresql, sqlite

from offpolicy_monitor.errors import Refusal, Unavailable
from offpolicy_monitor.store.rows.tables import DEFAULT_PROFILE, runs

INSERT: dict[str, Any] = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}
# A run may be deleted by another process between our making it and our holding it; that cannot go on for long.
ATTEMPTS = 5


@dataclass(frozen=True)
class HeldRun:
    """A run whose row this transaction holds, with what its rules are judged by: see tables.runs."""

    id: int
    name: str
    last_batch_at: float | None
    profile: str
    methods: list[dict[str, Any]] | None
    correction: str | None
    overrides: dict[str, dict[str, Any]] | None
    finished_at: float | None


_COLUMNS: Final = (
    *(runs.c.id, runs.c.name, runs.c.last_batch_at, runs.c.profile, runs.c.methods),
    *(runs.c.correction, runs.c.overrides, runs.c.finished_at),
)


def hold_runs(connection: Connection, names: Iterable[str], now: float) -> dict[str, HeldRun]:
    """Hold the rows of these runs, made where missing, in the order of their names so that nobody waits in a ring."""
    wanted = sorted(set(names))
    for _ in range(ATTEMPTS):
        held = _held(connection.execute(_NAMED, {"names": wanted}))
        missing = [name for name in wanted if name not in held]
        if not missing:
            return held
        _make(connection, missing, now)
    raise Unavailable(503, "store-busy", "a run is being deleted; send the shard again")


def hold_run(connection: Connection, name: str) -> HeldRun:
    """Hold the row of a run that must exist; Refusal 404 where it does not."""
    held = _hold(connection, runs.c.name == name)
    if name not in held:
        raise unknown_run(name)
    return held[name]


def hold_ids(connection: Connection, ids: Iterable[int]) -> dict[str, HeldRun]:
    """Hold the rows of runs by their ids, a few hundred at most; what has been deleted is left out."""
    return _hold(connection, runs.c.id.in_(list(ids)) & runs.c.deleted.is_(None))


def look_at(connection: Connection, ids: Iterable[int]) -> list[HeldRun]:
    """The same rows without holding them: what is read may have changed when it is acted upon."""
    query = select(*_COLUMNS).where(runs.c.id.in_(list(ids)), runs.c.deleted.is_(None))
    return [HeldRun(*row) for row in connection.execute(query)]


def unknown_run(name: str) -> Refusal:
    """There is no such run."""
    return Refusal(404, "unknown-run", f"there is no run named {name}")


def _hold(connection: Connection, which: ColumnElement[bool]) -> dict[str, HeldRun]:
    return _held(connection.execute(_holding(which)))


def _holding(which: ColumnElement[bool]) -> Select[Any]:
    return select(*_COLUMNS).where(which).order_by(runs.c.name).with_for_update()


def _held(rows: Iterable[Any]) -> dict[str, HeldRun]:
    return {row.name: HeldRun(*row) for row in rows}


# Made once: putting a statement together takes as long as running it.
_NAMED: Final = _holding(runs.c.name.in_(bindparam("names", expanding=True)))


def _make(connection: Connection, names: list[str], now: float) -> None:
    rows = [{"name": name, "profile": DEFAULT_PROFILE, "labels": {}, "created_at": now} for name in names]
    insert = INSERT[connection.dialect.name]
    connection.execute(insert(runs).on_conflict_do_nothing(), rows)
