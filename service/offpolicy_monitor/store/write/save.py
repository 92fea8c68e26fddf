"""Writes gradient steps back: their rows, and where there is a new merge that and its headline figures.

The one writer of steps but for store.write.settle, for shards that arrive and for deadlines that pass. Bulk statements
only. The caller holds the locks of the runs.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from sqlalchemy import Connection, bindparam, delete, insert, update

from offpolicy_monitor.store.rows import headlines
from offpolicy_monitor.store.rows.gradient_steps import GradientStep
from offpolicy_monitor.store.rows.held import HeldRun
from offpolicy_monitor.store.rows.merged_steps import Merged
from offpolicy_monitor.store.rows.statement import Statement
from offpolicy_monitor.store.rows.tables import steps

# What a step's arrival or deadline can change in its row; the rest is its identity.
CHANGING = (
    *("superseded", "state", "received", "merged", "minibatches", "policy_version"),
    *("first_received_at", "last_received_at"),
)
MERGED = ("summary", "figures")
IDENTITY = ("run_id", "step", "minibatch", "attempt", "shards")


def save_steps(
    connection: Connection,
    held: Mapping[str, HeldRun],
    touched: Sequence[GradientStep],
    merged: Mapping[int, Merged] = MappingProxyType({}),
    names: headlines.Ids | None = None,
) -> None:
    """Bring the rows of the touched steps up to date.

    `merged` are the new merges, by the identity of their steps; the others keep the merge that they have. `names` are
    the sets of names of headline figures that are known, for headlines.write.
    """
    run_ids = {name: run.id for name, run in held.items()}
    for step in touched:
        if id(step) in merged:
            step.keep(merged[id(step)].count)
    kept = [step for step in touched if not step.forgotten]
    # Figures are read off the summary; those that an older release stored are of the merge before.
    columns = {key: {"summary": merge.summary, "figures": None} for key, merge in merged.items()}
    known = [step for step in kept if step.id is not None]
    _delete(connection, [step.id for step in touched if step.forgotten and step.id is not None])
    _update(connection, [step for step in known if id(step) in merged], columns)
    _update(connection, [step for step in known if id(step) not in merged], {})
    _insert(connection, run_ids, [step for step in kept if step.id is None], columns)
    of_id = {step.id: step for step in kept if step.id is not None and id(step) in merged}
    headlines.write(
        connection,
        {key: merged[id(step)].headline(held[step.run].correction) for key, step in of_id.items()},
        {} if names is None else names,
    )


def _insert(
    connection: Connection, run_ids: Mapping[str, int], new: Sequence[GradientStep], merged: Mapping[int, Any]
) -> None:
    """Insert the rows and let each step know its id."""
    if not new:
        return
    absent = dict.fromkeys(MERGED)
    rows = [{**vars(step), "run_id": run_ids[step.run], **merged.get(id(step), absent)} for step in new]
    for step, row in zip(new, rows, strict=True):
        [(step.id,)] = _INSERT.rows(connection, **row)


def _update(connection: Connection, stored_steps: Sequence[GradientStep], merged: Mapping[int, Any]) -> None:
    if stored_steps:
        rows = [{"key": step.id, **vars(step), **merged.get(id(step), {})} for step in stored_steps]
        (_UPDATE_MERGED if merged else _UPDATE).run(connection, *rows)


def _updating(*names: str) -> Statement:
    changed = update(steps).where(steps.c.id == bindparam("key", required=True))
    return Statement(changed.values({name: bindparam(name, required=True) for name in names}))


_UPDATE, _UPDATE_MERGED = _updating(*CHANGING), _updating(*CHANGING, *MERGED)
_INSERT: Final = Statement(
    insert(steps)
    .values({name: bindparam(name, required=True) for name in (*IDENTITY, *CHANGING, *MERGED)})
    .returning(steps.c.id)
)


def _delete(connection: Connection, ids: Sequence[int | None]) -> None:
    if ids:
        connection.execute(delete(steps).where(steps.c.id.in_(ids)))
