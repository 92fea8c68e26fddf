"""Holds runs for the length of a transaction, making those that do not exist yet.

Everything that changes the steps or the alerts of a run holds its row first, so that two processes that meet in
PostgreSQL cannot both miss that a step is complete. On SQLite the one writing transaction is lock enough. It also gives
the row another revision, so that a process that remembers the run (rows.memory) sees that it must read again.
"""

import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Select, bindparam, select, update

from offpolicy_monitor.errors import Refusal, Unavailable
from offpolicy_monitor.store.rows.statement import INSERT, Statement
from offpolicy_monitor.store.rows.tables import DEFAULT_PROFILE, runs

# A run may be deleted by another process between our making it and our holding it; that cannot go on for long.
ATTEMPTS = 5


@dataclass(frozen=True)
class HeldRun:
    """A run whose row this transaction holds, with what its rules are judged by: see rows.tables.runs."""

    id: int
    name: str
    last_batch_at: float | None
    profile: str
    methods: list[dict[str, Any]] | None
    correction: str | None
    overrides: dict[str, dict[str, Any]] | None
    finished_at: float | None
    length_cap: int | None = None
    revision: int | None = None


_COLUMNS: Final = (
    *(runs.c.id, runs.c.name, runs.c.last_batch_at, runs.c.profile, runs.c.methods),
    *(runs.c.correction, runs.c.overrides, runs.c.finished_at, runs.c.length_cap, runs.c.revision),
)


def new_revision() -> int:
    """A number that no run had before: one that a failed transaction has left nowhere is never met again."""
    return secrets.randbits(62)


def hold_runs(connection: Connection, names: Iterable[str], now: float) -> dict[str, HeldRun]:
    """Hold the rows of these runs, made where missing, in the order of their names so that nobody waits in a ring.

    Who changes one gives it a new revision.
    """
    wanted = sorted(set(names))
    for _ in range(ATTEMPTS):
        parameters = {f"name_{index}": name for index, name in enumerate(wanted)}
        held = _held(_named(len(wanted)).rows(connection, **parameters))
        missing = [name for name in wanted if name not in held]
        if not missing:
            return held
        _make(connection, missing, now)
    raise Unavailable(503, "store-busy", "a run is being deleted; send the shard again")


def hold_run(connection: Connection, name: str) -> HeldRun:
    """Hold the row of a run that must exist, to change it; Refusal 404 where it does not."""
    held = _hold(connection, runs.c.name == name)
    if name not in held:
        raise unknown_run(name)
    return held[name]


def hold_ids(connection: Connection, ids: Iterable[int]) -> dict[str, HeldRun]:
    """Hold the rows of runs by their ids, a few hundred at most, to change them; what has been deleted is left out."""
    return _hold(connection, runs.c.id.in_(list(ids)) & runs.c.deleted.is_(None))


def look_at(connection: Connection, ids: Iterable[int]) -> list[HeldRun]:
    """The same rows without holding them: what is read may have changed when it is acted upon."""
    query = select(*_COLUMNS).where(runs.c.id.in_(list(ids)), runs.c.deleted.is_(None))
    return [HeldRun(*tuple(row)) for row in connection.execute(query)]


def unknown_run(name: str) -> Refusal:
    """There is no such run."""
    return Refusal(404, "unknown-run", f"there is no run named {name}")


def _hold(connection: Connection, which: ColumnElement[bool]) -> dict[str, HeldRun]:
    held = _held(connection.execute(_holding(which)))
    ids = [run.id for run in held.values()]
    connection.execute(update(runs).where(runs.c.id.in_(ids)).values(revision=new_revision()))
    return held


def _holding(which: ColumnElement[bool]) -> "Select[*tuple[Any, ...]]":
    return select(*_COLUMNS).where(which).order_by(runs.c.name).with_for_update()


def _held(rows: Iterable[Any]) -> dict[str, HeldRun]:
    return {run.name: run for run in (HeldRun(*row) for row in rows)}


@cache
def _named(count: int) -> Statement:
    names = [bindparam(f"name_{index}", type_=runs.c.name.type, required=True) for index in range(count)]
    return Statement(_holding(runs.c.name.in_(names)))


def _make(connection: Connection, names: list[str], now: float) -> None:
    rows = [{"name": name, "profile": DEFAULT_PROFILE, "labels": {}, "created_at": now} for name in names]
    insert = INSERT[connection.dialect.name]
    connection.execute(insert(runs).on_conflict_do_nothing(), rows)
