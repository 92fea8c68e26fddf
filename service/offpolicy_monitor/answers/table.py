"""Tables: columns as wide as what they hold; where a terminal is narrower, some go and one is cut."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from offpolicy_monitor.answers.style import ENDLESS, Style, clean

BETWEEN: Final = "  "


@dataclass(frozen=True)
class Column:
    """A heading and its cells; `right`: aligned by their ends; `cut`: may be cut to so many columns, 0 for never.

    `optional` from 1 on: left out where there is no room, the largest first. `colours`: a colour for each cell.
    """

    head: str
    cells: Sequence[str]
    right: bool = False
    cut: int = 0
    optional: int = 0
    colours: Sequence[str] = field(default=())

    @property
    def width(self) -> int:
        """Columns of the widest of its cells."""
        return max(map(len, (self.head, *self.cells)))

    @property
    def least(self) -> int:
        """Columns without which it says nothing."""
        return min(self.width, self.cut) if self.cut else self.width


def table(columns: Sequence[Column], style: Style) -> list[str]:
    """Lines: the heading, then a row each; columns that hold nothing are left out."""
    shown = _fitting([_cleaned(column) for column in columns if any(column.cells)], style.width)
    if not shown:
        return []
    widths = _widths(shown, style.width)
    head = BETWEEN.join(_cell(column, column.head, width) for column, width in zip(shown, widths, strict=True))
    rows = [
        BETWEEN.join(
            style.paint(_cell(column, column.cells[row], width), column.colours[row] if column.colours else "")
            for column, width in zip(shown, widths, strict=True)
        )
        for row in range(len(shown[0].cells))
    ]
    return [style.paint(head.rstrip(), "quiet"), *(row.rstrip() for row in rows)]


def _cleaned(column: Column) -> Column:
    cells = [clean(cell) for cell in column.cells]
    return Column(column.head, cells, column.right, column.cut, column.optional, column.colours)


def _fitting(columns: Sequence[Column], room: int) -> list[Column]:
    """Without those that there is no room for."""
    shown = list(columns)
    while _sum([column.least for column in shown]) > room:
        least = max(shown, key=lambda column: column.optional)
        if not least.optional:
            break
        shown.remove(least)
    return shown


def _widths(columns: Sequence[Column], room: int) -> list[int]:
    """Of each column; what is too much is taken from the widest of those that may be cut."""
    widths = [column.width for column in columns]
    while room != ENDLESS and (over := _sum(widths) - room) > 0:
        left = sorted((widths[index], index) for index, column in enumerate(columns) if widths[index] > column.least)
        if not left:
            break
        widest, index = left.pop()
        next_widest = max(columns[index].least, left[-1][0] if left else 0)
        widths[index] = max(widest - over, min(next_widest, widest - 1), columns[index].least)
    return widths


def _sum(widths: Sequence[int]) -> int:
    return sum(widths) + len(BETWEEN) * (len(widths) - 1)


def _cell(column: Column, text: str, width: int) -> str:
    shown = text if len(text) <= width else text[: width - 1] + "…"
    return shown.rjust(width) if column.right else shown.ljust(width)
