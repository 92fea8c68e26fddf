"""Spans: the headline figures of settled steps in columns, one row for each figure of some hundred gradient steps.

So a plot over a hundred thousand steps reads two hundred rows a figure. A span follows from rows of `steps` and
`metrics`, which stay what is true: it stands while `steps` has as many rows in its range as it was made of, since a
step that is settled changes only where another row replaces it. So whoever replaces one, of whatever release, need
know nothing of spans. Those of a run follow one another from its first step on.

Every function takes the caller's connection.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import zstandard
from numpy.typing import NDArray
from sqlalchemy import Connection, func, select

from offpolicy_monitor.store.rows.places import Places
from offpolicy_monitor.store.rows.tables import spans, steps

#: The name under which a span has where its steps are.
PLACES: Final = ""
Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Covered:
    """What spans have of the steps of a run in a range: `end` is the last step of theirs, -1 where there are none.

    places: of n gradient steps that stand, ascending; figures: name -> [n] float64, NaN where a step lacks it.
    """

    end: int
    places: Places
    figures: dict[str, Numbers]

    def of(self, chosen: NDArray[np.bool_]) -> "Covered":
        """Some of the steps."""
        if chosen.all():
            return self
        return Covered(self.end, self.places[chosen], {name: found[chosen] for name, found in self.figures.items()})


def read(connection: Connection, run: int, first: int | None, last: int | None, names: Sequence[str]) -> Covered:
    """Figures of the settled steps from `first` to `last` of a run; of those after `end` spans know nothing."""
    begin, end = first or 0, end_of(connection, run, last)
    if end < begin:
        return Covered(-1, Places.none(), {name: np.empty(0) for name in names})
    wanted = spans.c.name.in_([PLACES, *set(names)])
    query = select(spans.c.name, spans.c.step, spans.c.numbers).where(spans.c.run_id == run, wanted)
    query = query.where(spans.c.last_step >= begin, spans.c.last_step <= end)
    found: dict[str, dict[int, bytes]] = {name: {} for name in (PLACES, *names)}
    for name, step, numbers in connection.execute(query).all():
        found[name][step] = numbers
    parts = {step: Places.from_bytes(zstandard.decompress(numbers)) for step, numbers in sorted(found[PLACES].items())}
    lengths = {step: len(part) for step, part in parts.items()}
    figures = {name: _joined(found[name], lengths) for name in names}
    covered = Covered(end, Places.joined(list(parts.values())), figures)
    at = covered.places.step
    inside = at >= begin if last is None else (at >= begin) & (at <= last)
    return covered.of(inside)


def _joined(parts: dict[int, bytes], lengths: dict[int, int]) -> Numbers:
    """One figure over spans; NaN over those that lack it."""
    if not parts:
        return np.full(sum(lengths.values()), np.nan)
    absent = {step: np.full(length, np.nan).tobytes() for step, length in lengths.items() if step not in parts}
    return np.frombuffer(b"".join(parts[step] if step in parts else absent[step] for step in lengths), "<f8")


def end_of(connection: Connection, run: int, last: int | None = None) -> int:
    """The last step of the spans of a run that stand, from its first one on, as far as `last` needs them; -1: none."""
    query = select(spans.c.step, spans.c.last_step, spans.c.rows).where(spans.c.run_id == run, spans.c.name == PLACES)
    if last is not None:
        query = query.where(spans.c.step <= last)
    found = connection.execute(query.order_by(spans.c.step)).all()
    made = np.cumsum([row.rows for row in found])
    # As many as stand: where a row was added in the middle, half of what is left is looked at each time.
    few, most = 0, len(found)
    wanted = most
    while few < most:
        if _count(connection, run, found[wanted - 1].last_step) == made[wanted - 1]:
            few = wanted
        else:
            most = wanted - 1
        wanted = (few + most + 1) // 2
    return int(found[few - 1].last_step) if few else -1


def _count(connection: Connection, run: int, last: int) -> int:
    query = select(func.count()).select_from(steps).where(steps.c.run_id == run, steps.c.step <= last)
    return int(connection.execute(query).scalar_one())
