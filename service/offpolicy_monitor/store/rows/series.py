"""Figures over the steps of a run, as columns for plotting.

Headline figures and the columns of steps are read together in one pass, whatever their number, and have one x;
down-sampling keeps the lowest and the highest value of each stretch. Any other figure takes some milliseconds per step,
to derive it or to read it among all that are stored, so that of a long range some steps are read, spread evenly over
it; these have one x of their own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import ColumnElement, Connection, select, tuple_

from offpolicy_monitor.errors import Refusal, quotable
from offpolicy_monitor.figures import is_headline, is_known
from offpolicy_monitor.store.rows import derived, headlines, spans, step_columns
from offpolicy_monitor.store.rows.derived import Figures
from offpolicy_monitor.store.rows.lately import Lately
from offpolicy_monitor.store.rows.runs import run_id
from offpolicy_monitor.store.rows.settled import Settled
from offpolicy_monitor.store.rows.spans import Covered
from offpolicy_monitor.store.rows.step_index import StepIndex
from offpolicy_monitor.store.rows.steps import in_range, is_last_minibatch, spread
from offpolicy_monitor.store.rows.tables import OPEN, metrics, runs, steps
from offpolicy_monitor.store.rows.thinned import thinned

#: Steps of which a figure that is no headline is read, for less than a second.
MOST_READ: Final = 256
#: Rows that are read before they become columns: what objects cost grows faster than their number, for the collector of
#: garbage walks over those that are there.
PORTION: Final = 512
#: Plots kept: half a megabyte each where a page asks, four at most.
PLOTS: Final = 8
_ORDER: Final = (steps.c.step, steps.c.minibatch)

#: [n] float64, NaN where a gradient step lacks the figure.
Numbers = NDArray[np.float64]


@dataclass
class Columns:
    """Columns of n gradient steps, ascending: figures that are kept narrow, columns of steps (rows.step_columns), and
    others as values, None for absent."""

    step: NDArray[np.int64]
    minibatch: NDArray[np.int64]
    figures: dict[str, Numbers] = field(default_factory=dict)
    of_steps: dict[str, NDArray[Any]] = field(default_factory=dict)
    others: dict[str, list[Any]] = field(default_factory=dict)

    def thinned(self, most: int) -> "Columns":
        """At most `most` of the steps: those at which a column is lowest or highest in its stretch."""
        if len(self.step) <= most:
            return self
        sizes = [step_columns.sizes(name, numbers) for name, numbers in self.of_steps.items()]
        sizes += [np.array([np.nan if v is None else float(v) for v in values]) for values in self.others.values()]
        told = [column for column in (*self.figures.values(), *sizes) if column is not None]
        told = [column for column in told if spans.takes_room(column) and not np.isnan(column).all()]
        # With nothing to keep the extremes of, any steps are as good: the numbers of the steps spread them evenly.
        at = thinned(told or [self.step.astype(np.float64)], most)
        return Columns(
            self.step[at],
            self.minibatch[at],
            {name: values[at] for name, values in self.figures.items()},
            {name: values[at] for name, values in self.of_steps.items()},
            {name: [values[index] for index in at] for name, values in self.others.items()},
        )

    def values(self, name: str) -> list[Any]:
        """One column, None where a step lacks it."""
        if name in self.others:
            return self.others[name]
        if name in self.of_steps:
            return step_columns.words(name, self.of_steps[name])
        return [None if value != value else value for value in self.figures[name].tolist()]

    def table(self) -> dict[str, Any]:
        """`step`, `minibatch` and `values` by name, without columns that none of the steps has.

        Arrays, each in one piece, with NaN for absent; or lists.
        """
        figures = {name: values for name, values in self.figures.items() if not np.isnan(values).all()}
        rest = {name: self.values(name) for name in (*self.of_steps, *self.others)}
        known = {name: values for name, values in rest.items() if any(value is not None for value in values)}
        whole = {name: np.ascontiguousarray(values) for name, values in figures.items()}
        x = {"step": np.ascontiguousarray(self.step), "minibatch": np.ascontiguousarray(self.minibatch)}
        return {**x, "values": whole | known}


@dataclass(frozen=True)
class Range:
    """Gradient steps of a run that count, from step `first` to `last`; with by="step" the last one of each step."""

    run: int
    first: int | None
    last: int | None
    by: str

    def covered(self, connection: Connection, figures: Sequence[str], settled: Settled) -> Covered:
        """What spans have of them."""
        found = settled.read(connection, self.run, figures, self.first, self.last)
        return found.of(found.index.last_of_each_step()) if self.by == "step" else found

    def after(self, covered: Covered) -> Sequence[ColumnElement[bool]]:
        """What selects the others."""
        counts = [*in_range(self.run, max(covered.end + 1, self.first or 0), self.last), steps.c.state != OPEN]
        return [*counts, is_last_minibatch()] if self.by == "step" else counts


class Series:
    """Reads series, and keeps the newest plots while their runs stand still.

    Safe to share between threads.
    """

    def __init__(self, settled: Settled) -> None:
        self._settled, self._plots = settled, Lately[Columns](PLOTS)

    def read(
        self,
        connection: Connection,
        run: str,
        fields: Sequence[str],
        first: int | None,
        last: int | None,
        points: int,
        by: str,
    ) -> list[tuple[Sequence[str], Columns]]:
        """Fields that share their x, and their columns of at most `points` entries.

        One entry per gradient step that counts, or, by step, the last one of each. Refusal 422 for a figure that is
        none.
        """
        asked = Range(run_id(connection, run), first, last, by)
        together = tuple(name for name in fields if name in step_columns.READERS or is_headline(name))
        apart = tuple(name for name in fields if name not in together)
        found = list[tuple[Sequence[str], Columns]]()
        for names, read in ((together, _read_together), (apart, _read_apart)):
            if names:
                work = partial(read, asked=asked, fields=names, points=points, settled=self._settled)
                found.append((names, self._plots.read(connection, asked.run, (asked, names, points), work)))
        return found

    def asked_since(self, since: float) -> Mapping[int, set[int]]:
        """As of Lately: runs whose plots were asked for since then, and under which revisions."""
        return self._plots.asked_since(since)

    def unasked(self) -> None:
        """As of Lately: nobody asked for the plots that are kept."""
        self._plots.unasked()

    def again(self, connection: Connection, run: int, since: float, most: int) -> None:
        """As of Lately: read plots of a run that has moved anew."""
        self._plots.again(connection, run, since, most)


def _read_together(
    connection: Connection, asked: Range, fields: Sequence[str], points: int, settled: Settled
) -> Columns:
    """Headline figures and the columns of steps: of settled steps off spans, of the others off a row for each."""
    figures = list(dict.fromkeys(name for name in fields if name not in step_columns.READERS))
    covered = asked.covered(connection, figures, settled)
    query = select(*_ORDER, *StepIndex.COLUMNS)
    if figures:
        query = query.add_columns(metrics.c.names_id, metrics.c.figures)
        query = query.select_from(steps.outerjoin(metrics, metrics.c.step_id == steps.c.id))
    query = query.where(*asked.after(covered)).order_by(*_ORDER)
    parts, known = [covered.index], dict[int, list[str]]()
    columns: dict[str, list[Numbers]] = {name: [column] for name, column in covered.figures.items()}
    for rows in connection.execute(query).partitions(PORTION):
        parts.append(StepIndex.of(rows))
        if figures:
            table = headlines.columns_of(connection, [(row[-2], row[-1]) for row in rows], figures, known)
            for name, column in zip(figures, table, strict=True):
                columns[name].append(column)
    index = StepIndex.joined(parts)
    of_steps = {
        name: read(connection, asked.run, index) for name, read in step_columns.READERS.items() if name in fields
    }
    joined = {name: spans.joined(found) for name, found in columns.items()}
    return Columns(index.step, index.minibatch, joined, of_steps).thinned(points)


def _read_apart(connection: Connection, asked: Range, fields: Sequence[str], points: int, settled: Settled) -> Columns:
    """Figures of at most MOST_READ steps; each step is read once for all of them. Refusal 422 for one that is none."""
    paths = _paths(connection, asked.run, fields)
    covered = asked.covered(connection, (), settled)
    others = connection.execute(select(*_ORDER).where(*asked.after(covered)).order_by(*_ORDER)).all()
    there = [*zip(covered.index.step.tolist(), covered.index.minibatch.tolist(), strict=True), *map(tuple, others)]
    chosen = tuple_(*_ORDER).in_(spread(there, MOST_READ))
    query = select(*_ORDER, *derived.COLUMNS).where(steps.c.run_id == asked.run, ~steps.c.superseded, chosen)
    rows = connection.execute(query.order_by(*_ORDER)).all()
    read = [Figures(row.figures, row.derived_from).at_each(list(paths.values()), row.step) for row in rows]
    values = {name: [of_step[index] for of_step in read] for index, name in enumerate(paths)}
    for name in fields:
        if not is_known(name) and all(value is None for value in values[name]):
            raise Refusal.of_field(422, "unknown-field", "field", f"{quotable(name)} is not a figure of this run")
    index = np.array([row[:2] for row in rows], np.int64).reshape(-1, 2)
    return Columns(index[:, 0], index[:, 1], others=values).thinned(points)


def _paths(connection: Connection, run: int, fields: Sequence[str]) -> Mapping[str, str]:
    """The path of each field: a figure of `correction` is that of the row which the run names now, if any."""
    correction = None
    if any(name.startswith("correction.") for name in fields):
        correction = connection.execute(select(runs.c.correction).where(runs.c.id == run)).scalar_one()
    of_row = "correction." if correction is None else f"methods.{correction}."
    return {
        name: f"{of_row}{name.removeprefix('correction.')}" if name.startswith("correction.") else name
        for name in fields
    }
