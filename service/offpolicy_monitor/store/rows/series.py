"""Figures over the steps of a run, as columns for plotting.

Headline figures and the columns of steps are read together in one pass, whatever their number, and have one x;
down-sampling keeps the lowest and the highest value of each stretch. Any other figure takes some milliseconds per step,
to derive it or to read it among all that are stored, so that of a long range some steps are read, spread evenly over
it; these have one x of their own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import ColumnElement, Connection, select

from offpolicy_monitor.errors import Refusal, quotable
from offpolicy_monitor.figures import is_headline, is_known
from offpolicy_monitor.store.rows import derived, headlines, step_columns
from offpolicy_monitor.store.rows.derived import Figures
from offpolicy_monitor.store.rows.runs import run_id
from offpolicy_monitor.store.rows.steps import in_range, is_last_minibatch, spread
from offpolicy_monitor.store.rows.tables import OPEN, metrics, runs, steps
from offpolicy_monitor.store.rows.thinning import thinned

#: Steps of which a figure that is no headline is read, for less than a second.
MOST_READ: Final = 256
#: Rows that are read before they become columns: what objects cost grows faster than their number, for the collector of
#: garbage walks over those that are there.
PORTION: Final = 512
_ORDER: Final = (steps.c.step, steps.c.minibatch)

#: [n] float64, NaN where a gradient step lacks the figure.
Numbers = NDArray[np.float64]


@dataclass
class Columns:
    """Columns of n gradient steps, ascending: figures that are kept narrow, and others as values, None for absent."""

    step: list[int]
    minibatch: list[int]
    figures: dict[str, Numbers] = field(default_factory=dict)
    others: dict[str, list[Any]] = field(default_factory=dict)

    def thinned(self, most: int) -> "Columns":
        """At most `most` of the steps: those at which a column is lowest or highest in its stretch."""
        if len(self.step) <= most:
            return self
        sizes = [step_columns.sizes(name, values) for name, values in self.others.items()]
        told = [*self.figures.values(), *(size for size in sizes if size is not None)]
        # With nothing to keep the extremes of, any steps are as good: the numbers of the steps spread them evenly.
        at = thinned(np.stack(told or [np.array(self.step, np.float64)]), most).tolist()
        return Columns(
            [self.step[index] for index in at],
            [self.minibatch[index] for index in at],
            {name: values[at] for name, values in self.figures.items()},
            {name: [values[index] for index in at] for name, values in self.others.items()},
        )

    def values(self, name: str) -> list[Any]:
        """One column, None where a step lacks it."""
        if name in self.others:
            return self.others[name]
        return [None if value != value else value for value in self.figures[name].tolist()]


def read_series(
    connection: Connection,
    run: str,
    fields: Sequence[str],
    first: int | None,
    last: int | None,
    points: int,
    by: str,
) -> list[dict[str, Any]]:
    """Of each field `field` and the columns `step`, `minibatch` and `value`, of at most `points` entries.

    One entry per gradient step that counts, or, by step, the last one of each. Refusal 422 for a figure that is none.
    """
    of_run = run_id(connection, run)
    counts = [*in_range(of_run, first, last), steps.c.state != OPEN]
    counts += [is_last_minibatch()] if by == "step" else []
    together = [name for name in fields if name in step_columns.READERS or is_headline(name)]
    apart = [name for name in fields if name not in together]
    found: dict[str, Columns] = {}
    if together:
        found |= dict.fromkeys(together, _read_together(connection, of_run, counts, together).thinned(points))
    if apart:
        columns = _read_apart(connection, of_run, counts, apart)
        for name in apart:
            if not is_known(name) and all(value is None for value in columns.others[name]):
                raise Refusal.of_field(422, "unknown-field", "field", f"{quotable(name)} is not a figure of this run")
        found |= dict.fromkeys(apart, columns.thinned(points))
    return [_answer(name, found[name]) for name in fields]


def _answer(name: str, columns: Columns) -> dict[str, Any]:
    return {"field": name, "step": columns.step, "minibatch": columns.minibatch, "value": columns.values(name)}


def _read_together(
    connection: Connection, run: int, counts: Sequence[ColumnElement[bool]], fields: Sequence[str]
) -> Columns:
    """Headline figures, off the numbers that are stored in one row per step, and the columns of steps."""
    figures = list(dict.fromkeys(name for name in fields if name not in step_columns.READERS))
    others = list(dict.fromkeys(name for name in fields if name in step_columns.READERS))
    query = select(*_ORDER, metrics.c.names_id, metrics.c.figures) if figures else select(*_ORDER)
    source = steps.outerjoin(metrics, metrics.c.step_id == steps.c.id) if figures else steps
    query = query.add_columns(*(step_columns.COLUMNS if others else ())).select_from(source)
    columns, known = Columns([], []), dict[int, list[str]]()
    tables, kept = [np.empty((len(figures), 0))], list[Any]()
    for rows in connection.execute(query.where(*counts).order_by(*_ORDER)).partitions(PORTION):
        columns.step += [row[0] for row in rows]
        columns.minibatch += [row[1] for row in rows]
        if figures:
            tables.append(headlines.columns_of(connection, [(row[2], row[3]) for row in rows], figures, known))
        kept += rows if others else ()
    columns.figures = dict(zip(figures, np.concatenate(tables, axis=1), strict=True))
    columns.others = {name: step_columns.READERS[name](connection, run, kept) for name in others}
    return columns


def _read_apart(
    connection: Connection, run: int, counts: Sequence[ColumnElement[bool]], fields: Sequence[str]
) -> Columns:
    """Figures of at most MOST_READ steps; each step is read once for all of them."""
    paths = _paths(connection, run, fields)
    ids = connection.scalars(select(steps.c.id).where(*counts).order_by(*_ORDER)).all()
    query = select(*_ORDER, *derived.COLUMNS).where(steps.c.id.in_(spread(ids, MOST_READ)))
    rows = connection.execute(query.order_by(*_ORDER)).all()
    read = [Figures(row.figures, row.derived_from).at_each(list(paths.values())) for row in rows]
    others = {name: [values[index] for values in read] for index, name in enumerate(paths)}
    return Columns([row.step for row in rows], [row.minibatch for row in rows], others=others)


def _paths(connection: Connection, run: int, fields: Sequence[str]) -> Mapping[str, str]:
    """The path of each field: a figure of `correction` is that of the row which the run names now."""
    correction = None
    if any(name.startswith("correction.") for name in fields):
        correction = connection.execute(select(runs.c.correction).where(runs.c.id == run)).scalar_one()
    return {
        name: f"methods.{correction}.{name.removeprefix('correction.')}" if name.startswith("correction.") else name
        for name in fields
    }
