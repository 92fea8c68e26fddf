"""Steps as readers see them: figures of the merge, and how many shards it is of.

A step that does not count yet is merged as it is read. Superseded attempts are not shown. Every function takes the
caller's connection.
"""

from collections.abc import Sequence
from typing import Any, Final, TypeVar

from sqlalchemy import ColumnElement, Connection, select

from offpolicy_monitor.errors import Refusal
from offpolicy_monitor.store.rows import derived
from offpolicy_monitor.store.rows.cursors import Page, cut, decode_cursor, encode_cursor
from offpolicy_monitor.store.rows.derived import Figures
from offpolicy_monitor.store.rows.merged_steps import merge_stored
from offpolicy_monitor.store.rows.runs import run_id
from offpolicy_monitor.store.rows.step_columns import active_at, verdict_of
from offpolicy_monitor.store.rows.tables import COMPLETE, OPEN, steps
from offpolicy_monitor.timestamps import timestamp

T = TypeVar("T")
BY = ("step", "minibatch")

_PLACE: Final = (
    *(steps.c.run_id, steps.c.step, steps.c.minibatch, steps.c.attempt, steps.c.policy_version),
    *(steps.c.shards, steps.c.received, steps.c.merged, steps.c.state),
    *(steps.c.first_received_at, steps.c.last_received_at),
)
ROW_COLUMNS: Final = (*_PLACE, *derived.COLUMNS)


def list_steps(
    connection: Connection,
    run: str,
    first: int | None,
    last: int | None,
    limit: int,
    cursor: str | None,
    by: str,
    detail: str = "full",
) -> Page:
    """Merged rows from step `first` to `last`, ascending: the last gradient step of each step, or every one.

    With detail "headline" those that count, with the figures that are kept narrow: no summary is read.
    """
    if by not in BY:
        raise Refusal.of_field(422, "unknown-value", "by", f"must be one of {', '.join(BY)}")
    narrow = detail == "headline"
    columns = (*_PLACE, steps.c.id.label("step_id")) if narrow else ROW_COLUMNS
    query = select(*columns).where(*in_range(run_id(connection, run), first, last))
    if narrow:
        query = query.where(steps.c.state != OPEN, steps.c.merged.is_not(None))
    if by == "step":
        query = query.where(is_last_minibatch())
    if cursor is not None:
        step, minibatch = decode_cursor(cursor, 2)
        query = query.where((steps.c.step > step) | ((steps.c.step == step) & (steps.c.minibatch > minibatch)))
    found = connection.execute(query.order_by(steps.c.step, steps.c.minibatch).limit(limit + 1)).all()
    rows, more = cut(found, limit)
    following = encode_cursor(rows[-1].step, rows[-1].minibatch) if more else None
    figures = derived.headlines_of_rows(connection, rows) if narrow else derived.of_rows(connection, rows)
    return Page([_without_breakdowns(row) for row in _rows(connection, rows, figures)], following)


def read_step(connection: Connection, run: str, step: int, minibatch: int | None) -> dict[str, Any]:
    """One merged gradient step, the last of its step if not named; Refusal 404 where there is none."""
    of_step = in_range(run_id(connection, run), step, step)
    known = connection.execute(select(steps.c.minibatch).where(*of_step).order_by(steps.c.minibatch)).scalars().all()
    row_id = find(connection, run, step, minibatch)
    found = connection.execute(select(*ROW_COLUMNS).where(steps.c.id == row_id)).all()
    [row] = _rows(connection, found, derived.of_rows(connection, found))
    return {"breakdowns": {}, **row, "minibatches": list(known)}


def find(connection: Connection, run: str, step: int | None, minibatch: int | None) -> int:
    """The row of a gradient step that stands; what is not named is the last one."""
    query = select(steps.c.id).where(*in_range(run_id(connection, run), step, step))
    if minibatch is not None:
        query = query.where(steps.c.minibatch == minibatch)
    found = connection.execute(query.order_by(steps.c.step.desc(), steps.c.minibatch.desc()).limit(1)).scalar()
    if found is None:
        which = "step" if step is None else f"step {step}"
        which = which if minibatch is None else f"minibatch {minibatch} of {which}"
        raise Refusal(404, "unknown-step", f"run {run} has no {which}")
    return int(found)


def spread(ids: Sequence[T], most: int) -> list[T]:
    """So many of them, spread evenly, the first and the last among them; all where they are no more."""
    count = min(most, len(ids))
    return [ids[index * (len(ids) - 1) // max(count - 1, 1)] for index in range(count)]


def _without_breakdowns(row: dict[str, Any]) -> dict[str, Any]:
    """A page of steps is for figures; the breakdowns of one step are larger than all of them."""
    return {name: value for name, value in row.items() if name != "breakdowns"}


def in_range(run: int, first: int | None, last: int | None) -> list[ColumnElement[bool]]:
    """What selects the gradient steps of a run that stand, from step `first` to `last`."""
    conditions = [steps.c.run_id == run, ~steps.c.superseded]
    if first is not None:
        conditions.append(steps.c.step >= first)
    if last is not None:
        conditions.append(steps.c.step <= last)
    return conditions


def is_last_minibatch() -> ColumnElement[bool]:
    """Whether a gradient step is the last one seen of its training step."""
    other = steps.alias()
    of_step = (other.c.run_id == steps.c.run_id) & (other.c.step == steps.c.step) & ~other.c.superseded
    # Not "is the largest": PostgreSQL expects that of few, and would look at all of a run for one page.
    return ~select(other.c.id).where(of_step, other.c.minibatch > steps.c.minibatch).correlate(steps).exists()


def _rows(connection: Connection, rows: Sequence[Any], figures: Sequence[Figures]) -> list[dict[str, Any]]:
    """Rows of one run with what says where they are, and their figures, as they are answered."""
    active = active_at(connection, rows[0].run_id, rows) if rows else []
    return [_row(connection, *each) for each in zip(rows, figures, active, strict=True)]


def _row(
    connection: Connection, row: Any, figures: Figures, active: Sequence[tuple[str, str]] | None
) -> dict[str, Any]:
    alerts = None if active is None else [{"alert": alert, "severity": severity} for alert, severity in active]
    return {
        "step": row.step,
        "minibatch": row.minibatch,
        "attempt": row.attempt,
        "policy_version": row.policy_version,
        "received_shards": row.received if row.merged is None else row.merged,
        "shards": row.shards,
        "complete": row.state == COMPLETE,
        "received_at": timestamp(row.last_received_at),
        "verdict": None if active is None else verdict_of(active),
        "alerts": alerts,
        **(_merged_now(connection, row) if row.merged is None else figures.shown(row.step)),
    }


def _merged_now(connection: Connection, row: Any) -> dict[str, Any]:
    found = merge_stored(connection, row.run_id, row.step, row.minibatch, row.attempt)
    return {} if found is None else found.step_figures()
