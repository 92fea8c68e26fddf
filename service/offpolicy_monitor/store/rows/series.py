"""One figure over the gradient steps of a run, as columns for plotting.

Headline figures come from `metrics`; down-sampling keeps the lowest and the highest value of each stretch, so that a
spike is never lost. Any other takes some milliseconds per step, to derive it or to read it among all that are stored,
so that of a long range some steps are read, spread evenly over it.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, select

from offpolicy_monitor.errors import Refusal
from offpolicy_monitor.figures import is_headline, is_known
from offpolicy_monitor.store.rows import derived, headlines
from offpolicy_monitor.store.rows.derived import Figures
from offpolicy_monitor.store.rows.runs import run_id
from offpolicy_monitor.store.rows.steps import in_range, spread
from offpolicy_monitor.store.rows.tables import OPEN, metrics, runs, steps

#: Steps of which a figure that is no headline is read, for less than a second.
MOST_READ: Final = 256


class Point(NamedTuple):
    """The figure at one gradient step, None where the step lacks it."""

    step: int
    minibatch: int
    value: float | None


def read_series(
    connection: Connection, run: str, field: str, first: int | None, last: int | None, points: int
) -> dict[str, Any]:
    """Columns `step`, `minibatch`, `value` of at most `points` entries; Refusal 422 for a figure that is none."""
    read = _from_metrics if is_headline(field) else _from_figures
    found = list(read(connection, run_id(connection, run), field, first, last))
    if not is_known(field) and all(point.value is None for point in found):
        raise Refusal.of_field(422, "unknown-field", "field", f"{field} is not a figure of this run")
    columns = list(zip(*thin(found, points), strict=True)) or [(), (), ()]
    return {"field": field, **{name: list(c) for name, c in zip(Point._fields, columns, strict=True)}}


def thin(points: Sequence[Point], most: int) -> Sequence[Point]:
    """At most `most` of the points, in order: of each of `most / 2` equal stretches the lowest and the highest."""
    if len(points) <= most:
        return points
    stretches = max(1, most // 2)
    kept: list[Point] = []
    for i in range(stretches):
        kept += _extremes(points[i * len(points) // stretches : (i + 1) * len(points) // stretches])
    return kept[:most]


def _extremes(stretch: Sequence[Point]) -> list[Point]:
    filled = [(point.value, i) for i, point in enumerate(stretch) if point.value is not None]
    if not filled:
        return [stretch[0]]
    return [stretch[i] for i in sorted({min(filled)[1], max(filled)[1]})]


def _from_metrics(connection: Connection, run: int, field: str, first: int | None, last: int | None) -> Iterator[Point]:
    columns = (steps.c.step, steps.c.minibatch, metrics.c.names_id, metrics.c.figures)
    query = select(*columns).select_from(steps.outerjoin(metrics, metrics.c.step_id == steps.c.id))
    query = query.where(*in_range(run, first, last), steps.c.state != OPEN)
    rows = connection.execute(query.order_by(steps.c.step, steps.c.minibatch)).all()
    names = headlines.names_of(connection, {names_id for _, _, names_id, _ in rows if names_id is not None})
    indices = {names_id: known.index(field) if field in known else None for names_id, known in names.items()}
    for step, minibatch, names_id, figures in rows:
        index = indices.get(names_id)
        yield Point(step, minibatch, None if index is None else headlines.value_at(figures, index))


def _from_figures(connection: Connection, run: int, field: str, first: int | None, last: int | None) -> Iterator[Point]:
    """A figure of `correction` is that of the row which the run names now."""
    if field.startswith("correction."):
        correction = connection.execute(select(runs.c.correction).where(runs.c.id == run)).scalar_one()
        field = f"methods.{correction}.{field.removeprefix('correction.')}"
    counts = (*in_range(run, first, last), steps.c.state != OPEN)
    ids = connection.scalars(select(steps.c.id).where(*counts).order_by(steps.c.step, steps.c.minibatch)).all()
    query = select(steps.c.step, steps.c.minibatch, *derived.COLUMNS).where(steps.c.id.in_(spread(ids, MOST_READ)))
    for row in connection.execute(query.order_by(steps.c.step, steps.c.minibatch)):
        yield Point(row.step, row.minibatch, Figures(row.figures, row.derived_from).at(field))
