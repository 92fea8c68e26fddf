"""Spans: the headline figures of settled steps in columns, one row for each figure of some hundred gradient steps.

So a plot over a hundred thousand steps reads two hundred rows per figure. A span follows from rows of `steps` and
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

from offpolicy_monitor.store.rows.step_index import StepIndex
from offpolicy_monitor.store.rows.tables import spans, steps

#: The name under which a span has its index.
INDEX: Final = ""
Numbers = NDArray[np.float64]


#: A span that stands: its first and last step, and of how many rows of `steps` it was made.
Standing = tuple[int, int, int]


@dataclass(frozen=True)
class Covered:
    """What spans have of the steps of a run in a range: `end` is the last step of theirs, -1 where there are none.

    index: of n gradient steps that stand, ascending; figures: name -> [n] float64, NaN where a step lacks it.
    """

    end: int
    index: StepIndex
    figures: dict[str, Numbers]

    def of(self, chosen: NDArray[np.bool_]) -> "Covered":
        """Some of the steps."""
        if chosen.all():
            return self
        return Covered(self.end, self.index[chosen], {name: found[chosen] for name, found in self.figures.items()})

    def between(self, first: int | None, last: int | None) -> "Covered":
        """The steps of a range."""
        at = self.index.step
        inside = at >= (first or 0)
        return self.of(inside if last is None else inside & (at <= last))


def read(connection: Connection, run: int, first: int | None, last: int | None, names: Sequence[str]) -> Covered:
    """Figures of the settled steps from `first` to `last` of a run; of those after `end` spans know nothing."""
    there = standing(connection, run, last)
    inside = [span for span in there if span[1] >= (first or 0)]
    figures = columns(connection, run, inside, names)
    return Covered(inside[-1][1] if inside else -1, figures.index, figures.figures).between(first, last)


def columns(connection: Connection, run: int, of: Sequence[Standing], names: Sequence[str]) -> Covered:
    """All steps of some spans that follow one another."""
    if not of:
        return Covered(-1, StepIndex.none(), {name: absent(0) for name in names})
    wanted = spans.c.name.in_([INDEX, *set(names)])
    query = select(spans.c.name, spans.c.step, spans.c.numbers).where(spans.c.run_id == run, wanted)
    query = query.where(spans.c.step >= of[0][0], spans.c.step <= of[-1][0])
    found: dict[str, dict[int, bytes]] = {name: {} for name in (INDEX, *names)}
    for name, step, numbers in connection.execute(query).all():
        found[name][step] = numbers
    parts = {
        step: StepIndex.from_bytes(zstandard.decompress(numbers)) for step, numbers in sorted(found[INDEX].items())
    }
    lengths = {step: len(part) for step, part in parts.items()}
    figures = {name: _joined(found[name], lengths) for name in names}
    return Covered(of[-1][1], StepIndex.joined(list(parts.values())), figures)


def _joined(parts: dict[int, bytes], lengths: dict[int, int]) -> Numbers:
    """One figure over spans; NaN over those that lack it."""
    if not parts:
        return absent(sum(lengths.values()))
    lacking = {step: np.full(length, np.nan).tobytes() for step, length in lengths.items() if step not in parts}
    return np.frombuffer(b"".join(parts[step] if step in parts else lacking[step] for step in lengths), "<f8")


def absent(steps: int) -> Numbers:
    """A figure that none of so many steps has; takes no room."""
    return np.broadcast_to(np.nan, steps)


def takes_room(column: Numbers) -> bool:
    """Whether a column is more than `absent` makes."""
    return bool(column.strides[0])


def joined(parts: Sequence[Numbers]) -> Numbers:
    """A figure of steps that follow one another; it takes no room where none of them has it."""
    if all(not takes_room(part) or np.isnan(part).all() for part in parts):
        return absent(sum(map(len, parts)))
    return np.concatenate(parts)


def end_of(connection: Connection, run: int) -> int:
    """The last step of the spans of a run that stand; -1: none."""
    found = standing(connection, run)
    return found[-1][1] if found else -1


def standing(connection: Connection, run: int, last: int | None = None) -> list[Standing]:
    """The spans of a run that stand, from its first one on, as far as `last` needs them."""
    query = select(spans.c.step, spans.c.last_step, spans.c.rows).where(spans.c.run_id == run, spans.c.name == INDEX)
    if last is not None:
        query = query.where(spans.c.step <= last)
    found = [(row[0], row[1], row[2]) for row in connection.execute(query.order_by(spans.c.step))]
    made = np.cumsum([rows for *_, rows in found])
    # As many as stand: where a row was added in the middle, half of what is left is looked at each time.
    few, most = 0, len(found)
    wanted = most
    while few < most:
        if _count(connection, run, found[wanted - 1][1]) == made[wanted - 1]:
            few = wanted
        else:
            most = wanted - 1
        wanted = (few + most + 1) // 2
    return found[:few]


def _count(connection: Connection, run: int, last: int) -> int:
    query = select(func.count()).select_from(steps).where(steps.c.run_id == run, steps.c.step <= last)
    return int(connection.execute(query).scalar_one())
