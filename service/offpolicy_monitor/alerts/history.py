"""History: figures of a run's training steps in order, as columns; what a step lacks is NaN.

Which of its gradient steps a figure of a training step is of is told by rules.OF_LAST. n steps, index 0 is the oldest.
"""

import math
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from offpolicy_monitor.figures import at

Column = Sequence[float]
#: [n] what was noted of each step; None where nothing was yet.
Notes = list[float | None]
#: [n] the same as one byte per step; UNMARKED where nothing was yet.
Marks = bytearray
UNMARKED: Final = 255

#: What the paths of figures of mismatch begin with, and those of the same figures of the total gap.
IN_TOTAL: Final = {"gaps.mismatch.": "gaps.total.", "outliers.mismatch.": "outliers.total."}
#: What those begin with that every run with mismatch has.
MISMATCH: Final = next(iter(IN_TOTAL))


@dataclass(frozen=True, eq=False)
class History:
    """steps [n], ascending; columns: path of a figure (`gaps.mismatch.k3`) -> [n] float64.

    noted: by name, what was computed of a step and its past under one set of terms, Notes or Marks. Whoever keeps it
    drops what stands at a step that changes, and at all later ones.

    stands_in: the total gap is here under the paths of mismatch, for runs that have no pi_old.
    """

    steps: Sequence[int]
    columns: Mapping[str, Column]
    noted: dict[str, Any] = field(default_factory=dict, repr=False)
    stands_in: bool = False

    @classmethod
    def of(cls, rows: Sequence[tuple[int, Mapping[str, Any]]], paths: Iterable[str]) -> "History":
        """From (step, figures) in order; figures are nested as answers have them, or already by path."""
        found = {path: [at(figures, path) for _, figures in rows] for path in paths}
        columns = {path: array("d", (math.nan if v is None else v for v in column)) for path, column in found.items()}
        return cls([step for step, _ in rows], columns)

    def column(self, path: str) -> Column:
        """[n] float64, NaN where a step lacks the figure, or where no step has it."""
        found = self.columns.get(path)
        return array("d", [math.nan]) * len(self.steps) if found is None else found

    def value(self, path: str, index: int) -> float:
        """The figure at a step; NaN where it lacks it."""
        found = self.columns.get(path)
        return math.nan if found is None else found[index]

    def known(self, steps: int) -> frozenset[str]:
        """The figures that one of the last so many steps has."""
        # Most steps have all figures.
        if self.steps and math.isfinite(sum([column[-1] for column in self.columns.values()])):
            return frozenset(self.columns)
        return frozenset(
            [
                path
                for path, column in self.columns.items()
                if column and (column[-1] == column[-1] or not all(map(math.isnan, column[-steps:])))
            ]
        )

    @cached_property
    def in_total(self) -> "History":
        """The same steps, with the total gap in the place of mismatch; what is noted of it is noted apart."""
        moved = {
            of_mismatch + path.removeprefix(of_total): column
            for of_mismatch, of_total in IN_TOTAL.items()
            for path, column in self.columns.items()
            if path.startswith(of_total)
        }
        return History(self.steps, {**self.columns, **moved}, self.noted, stands_in=True)

    def notes(self, name: str) -> Notes:
        """[n] what was noted by this name, to be read and filled."""
        found: Notes = self._noted(name, list)
        if lacking := len(self.steps) - len(found):
            found += [None] * lacking
        return found

    def marks(self, name: str) -> Marks:
        """[n] what was marked by this name, to be read and filled; of no name that notes have."""
        found: Marks = self._noted(name, bytearray)
        if lacking := len(self.steps) - len(found):
            found += bytes([UNMARKED]) * lacking
        return found

    def _noted(self, name: str, make: Callable[[], Any]) -> Any:
        if self.stands_in:
            name = f"{name} in total"
        found = self.noted.get(name)
        if found is None:
            found = self.noted[name] = make()
        return found
