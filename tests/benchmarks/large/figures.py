"""Figures of a large database: what was done, how long it took first and then, and what it may take."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Figure:
    """`first` and the later ones, in milliseconds unless the name says another unit; `limit`: the most it may be."""

    what: str
    first: float
    later: Sequence[float]
    limit: float | None = None

    @classmethod
    def of(cls, what: str, values: Sequence[float], limit: float | None = None) -> "Figure":
        """Of values in the order they came."""
        return cls(what, values[0], values[1:] or values, limit)

    @property
    def median(self) -> float:
        return statistics.median(self.later)

    @property
    def least(self) -> float:
        return min(self.later)

    def cells(self) -> tuple[str, ...]:
        """The texts of a line."""
        limit = "" if self.limit is None else f"{self.limit:g}"
        return self.what, number(self.first), number(self.median), number(self.least), limit

    def as_json(self) -> dict[str, Any]:
        return {"what": self.what, "first": self.first, "median": self.median, "least": self.least, "limit": self.limit}


HEADINGS = ("what", "first, ms", "median", "least", "goal")


def table(figures: Sequence[Figure]) -> str:
    """Aligned lines."""
    lines = [HEADINGS, *(figure.cells() for figure in figures)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(" | ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
