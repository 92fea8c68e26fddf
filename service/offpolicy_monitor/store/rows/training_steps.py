"""Rows of training steps: those that are waited for, and those that were judged, with the figures they were judged by.

Every function takes the caller's connection; the caller holds the runs. What the figures mean is not known here.
"""

import zlib
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from sqlalchemy import Connection, Delete, Insert, Table, bindparam, delete, select, tuple_

from offpolicy_monitor.store.rows.codec import pack
from offpolicy_monitor.store.rows.gradient_steps import LEDGER_COLUMNS, GradientStep, gradient_step
from offpolicy_monitor.store.rows.held import INSERT
from offpolicy_monitor.store.rows.tables import judged_steps, runs, steps, waiting_steps
from offpolicy_monitor.store.rows.training import LATER_STEPS, TrainingStep

#: Training steps that tell how many gradient steps a run's have: one that lost some does not mislead.
LEARNED_FROM: Final = 3
#: (run id, step)
Place = tuple[int, int]

# Made once: putting a statement together takes as long as running it.
_LEARNED: Final = (
    select(judged_steps.c.minibatches)
    .where(judged_steps.c.run_id == bindparam("run"))
    .order_by(judged_steps.c.attempt.desc(), judged_steps.c.step.desc())
    .limit(LEARNED_FROM)
)
_UNDECLARED: Final = select(waiting_steps.c.run_id, waiting_steps.c.step).where(
    waiting_steps.c.run_id.in_(bindparam("runs", expanding=True)), waiting_steps.c.minibatches.is_(None)
)
_LATER: Final = (
    select(steps.c.step)
    .where(steps.c.run_id == bindparam("run"), steps.c.step > bindparam("after"))
    .where(steps.c.attempt >= bindparam("since"), ~steps.c.superseded)
    .distinct()
    .limit(LATER_STEPS)
)


def load(connection: Connection, names: Mapping[int, str], places: Collection[Place]) -> list[TrainingStep]:
    """The training steps at these places, under the attempt that stands; `names` are the runs' by id."""
    if not places:
        return []
    at = tuple_(steps.c.run_id, steps.c.step).in_(places) & ~steps.c.superseded
    found: dict[Place, list[GradientStep]] = {}
    for row in connection.execute(select(*LEDGER_COLUMNS).where(at)):
        found.setdefault((row.run_id, row.step), []).append(gradient_step(names[row.run_id], row))
    return [TrainingStep.of(gradient_steps) for gradient_steps in found.values()]


def learned(connection: Connection, run: int) -> int | None:
    """How many gradient steps the run's training steps had lately; None before the first was judged."""
    return max(connection.execute(_LEARNED, {"run": run}).scalars(), default=None)


def later(connection: Connection, run: int, step: TrainingStep) -> int:
    """How many later training steps have begun, at most LATER_STEPS; none of an attempt that was given up."""
    asked = {"run": run, "after": step.step, "since": step.attempt}
    return len(connection.execute(_LATER, asked).all())


def undeclared(connection: Connection, run_ids: Iterable[int]) -> list[Place]:
    """Steps of these runs that are waited for and do not say how many gradient steps they have."""
    return [(row.run_id, row.step) for row in connection.execute(_UNDECLARED, {"runs": list(run_ids)})]


def overdue(connection: Connection, deadline: float, limit: int) -> list[Place]:
    """Steps whose newest gradient step began at `deadline` (unix seconds) or before, the oldest first."""
    query = select(waiting_steps.c.run_id, waiting_steps.c.step).join(runs).where(runs.c.deleted.is_(None))
    query = query.where(waiting_steps.c.since <= deadline)
    return [(row.run_id, row.step) for row in connection.execute(query.order_by(waiting_steps.c.since).limit(limit))]


def wait(connection: Connection, place: Place, step: TrainingStep) -> None:
    """Wait for what a step lacks."""
    run, at = place
    _put(connection, waiting_steps, {"run_id": run, "step": at, "minibatches": step.declared, "since": step.since})


def drop_waiting(connection: Connection, place: Place) -> None:
    """Wait for this step no longer."""
    connection.execute(_DROP_WAITING, {"run": place[0], "at": place[1]})


def keep(connection: Connection, place: Place, step: TrainingStep, figures: Mapping[str, float]) -> int:
    """Keep the figures by path that a step is judged by, instead of earlier ones; answers their checksum."""
    packed = pack(dict(figures))
    checksum = zlib.crc32(packed)
    of_step = {"run_id": place[0], "step": place[1], "attempt": step.attempt, "minibatches": step.known}
    _put(connection, judged_steps, {**of_step, "checksum": checksum, "figures": packed})
    return checksum


def forget(connection: Connection, places: Collection[Place]) -> None:
    """Another attempt has begun these steps again: what they were judged by counts no longer."""
    rows = [{"run": run, "at": step} for run, step in places]
    if rows:
        connection.execute(_DROP_WAITING, rows)
        connection.execute(_DROP_JUDGED, rows)


def _dropping(table: Table) -> Delete:
    """One row: a list of places in one statement would have a bound, and takes longer to put together."""
    return delete(table).where(table.c.run_id == bindparam("run"), table.c.step == bindparam("at"))


def _put(connection: Connection, table: Table, row: dict[str, Any]) -> None:
    """Insert a row, in place of one that has the same key."""
    connection.execute(_PUT[connection.dialect.name, table.name], row)


def _putting(dialect: str, table: Table) -> Insert:
    statement = INSERT[dialect](table)
    changed = {column.name: statement.excluded[column.name] for column in table.c if not column.primary_key}
    put: Insert = statement.on_conflict_do_update(index_elements=list(table.primary_key), set_=changed)
    return put


_DROP_WAITING, _DROP_JUDGED = _dropping(waiting_steps), _dropping(judged_steps)
_PUT: Final = {
    (dialect, table.name): _putting(dialect, table) for dialect in INSERT for table in (waiting_steps, judged_steps)
}
