"""Rows of the table: a figure of this machine, its ratio over a baseline of the same run, and the goal of that ratio.

Plain values and their text; knows nothing of what was measured.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

HEADINGS = ("what", "this machine", "ratio", "goal", "met")


@dataclass(frozen=True)
class Goal:
    """A bound on a ratio: least, or most."""

    bound: float
    at_least: bool

    def met_by(self, ratio: float) -> bool:
        return ratio >= self.bound if self.at_least else ratio <= self.bound

    def __str__(self) -> str:
        return f"{'>=' if self.at_least else '<='} {self.bound:g}"


def at_least(bound: float) -> Goal:
    return Goal(bound, True)


def at_most(bound: float) -> Goal:
    return Goal(bound, False)


@dataclass(frozen=True)
class Row:
    """One line. `value` is None where nothing could be measured, and `note` then says why; else it says how.

    Rows of one `what` are a curve: each is `at` a size. `better` is the side of a ratio that has no goal: `more` of it,
    or `less`.
    """

    what: str
    value: float | None
    unit: str
    ratio: float | None = None
    goal: Goal | None = None
    note: str = ""
    at: int | None = None
    better: Literal["more", "less"] | None = None

    @property
    def met(self) -> bool | None:
        return None if self.ratio is None or self.goal is None else self.goal.met_by(self.ratio)

    def cells(self) -> tuple[str, ...]:
        """The texts of the table's columns."""
        figure = self.note if self.value is None else f"{_number(self.value)} {self.unit}"
        ratio = "" if self.ratio is None else _number(self.ratio)
        met = {None: "", True: "yes", False: "no"}[self.met]
        what = self.what if self.at is None else f"{self.what}: {self.at:,}"
        return (what, figure, ratio, "" if self.goal is None else str(self.goal), met)

    def as_json(self) -> dict[str, object]:
        goal = None if self.goal is None else str(self.goal)
        return {
            "what": self.what,
            "at": self.at,
            "value": self.value,
            "unit": self.unit,
            "ratio": self.ratio,
            "goal": goal,
            "better": self.better,
            "met": self.met,
            "note": self.note,
        }


def table(rows: Sequence[Row]) -> str:
    """The rows as text, aligned, with the notes below."""
    lines = [HEADINGS, *(row.cells() for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = [" | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    text.insert(1, "-|-".join("-" * width for width in widths))
    notes = [f"{row.what}: {row.note}" for row in rows if row.note and row.value is not None]
    return "\n".join([*text, "", *notes])


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
