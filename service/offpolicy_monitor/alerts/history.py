"""History: figures of a run's training steps in order, as columns; what a step lacks is NaN.

Which of its gradient steps a figure of a training step is of is told by rules.OF_LAST. Shapes: n steps.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from offpolicy_monitor.figures import at

Column = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class History:
    """steps [n], ascending; columns: path of a figure (`gaps.mismatch.k3`) -> [n] float64."""

    steps: Sequence[int]
    columns: Mapping[str, Column]
    _measured: dict[str, Column] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def of(cls, rows: Sequence[tuple[int, Mapping[str, Any]]], paths: Iterable[str]) -> "History":
        """From (step, figures) in order; figures are nested as answers have them, or already by path."""
        columns = {path: np.array([at(figures, path) for _, figures in rows], np.float64) for path in paths}
        return cls([step for step, _ in rows], columns)

    def column(self, path: str) -> Column:
        """[n] float64, NaN where a step lacks the figure, or where no step has it."""
        found = self.columns.get(path)
        return np.full(len(self.steps), np.nan) if found is None else found

    def lacks(self, path: str, steps: int) -> bool:
        """Whether none of the last so many steps has the figure."""
        column = self.column(path)
        return bool(np.isnan(column[-1:]).all() and np.isnan(column[-steps:]).all())

    def once(self, name: str, measure: Callable[[], Column]) -> Column:
        """What `measure` gives, computed once: rules that are made of other rules ask for the same again."""
        if name not in self._measured:
            self._measured[name] = measure()
        return self._measured[name]
