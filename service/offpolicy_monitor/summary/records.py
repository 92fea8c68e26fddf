"""Records side by side: the single numbers of tables at several paths, so that a figure is one formula over all gaps,
or over all method rows, at once.

Formulas divide as they stand: what has no denominator comes out as NaN or infinity, and is answered as None.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from offpolicy_monitor.summary.arrays import Arrays
from offpolicy_monitor.summary.rows import name_of
from offpolicy_monitor.summary.scheme import REMEMBERED, Scheme

Floats = NDArray[np.float64]
#: Figures of R records by name, [R] each.
Figures = Mapping[str, Floats]
#: Around formulas, which do not warn: what cannot be divided is absent.
SILENT: Final = np.errstate(divide="ignore", invalid="ignore", over="ignore")
#: Kinds of records that are read side by side of each scheme.
KINDS: Final = 8


class Records:
    """The numbers [names, R] float64 of R records; NaN where a record lacks one, or some of what was merged did."""

    __slots__ = ("_numbers", "_plan")

    def __init__(self, numbers: Floats, plan: "_Plan") -> None:
        self._numbers, self._plan = numbers, plan

    @classmethod
    def at(cls, arrays: Arrays, paths: Iterable[str]) -> "Records":
        """The records at these paths."""
        plan = _plan(arrays.scheme, tuple(paths), arrays.absent)
        found = arrays.buffer[plan.entries]
        numbers = found.view(np.float64)
        numbers[: plan.counts] = found[: plan.counts]
        if plan.lacking is not None:
            numbers[plan.lacking] = np.nan
        return cls(numbers, plan)

    @classmethod
    def of(cls, records: Sequence[Mapping[str, float]], names: Sequence[str]) -> "Records":
        """The same of records one by one."""
        numbers = [[record.get(name, np.nan) for record in records] for name in names]
        return cls(np.array(numbers, np.float64), _Plan.of(names))

    def __len__(self) -> int:
        return len(self._numbers.T)

    def __getitem__(self, name: str) -> Floats:
        numbers: Floats = self._numbers[self._plan.row_of[name]]
        return numbers

    def rows(self, names: tuple[str, ...]) -> Floats:
        """[N, R] of some names."""
        chosen = self._plan.chosen.get(names)
        if chosen is None:
            chosen = self._plan.chosen[names] = np.array([self._plan.row_of[name] for name in names], np.intp)
        return self._numbers[chosen]


def means(sums: Records, wanted: Mapping[str, str], count: Floats) -> Figures:
    """Figures that are a sum over a count, by the names of figure and sum."""
    return dict(zip(wanted, sums.rows(tuple(wanted.values())) / count, strict=True))


class _Plan(NamedTuple):
    """Where the numbers of records are.

    row_of   the row of each name, counts first
    counts   how many of the names are counts
    entries  [names, R] in the buffer
    lacking  [names, R] where there is none
    chosen   the indices of names that were asked for together
    """

    row_of: Mapping[str, int]
    counts: int
    entries: NDArray[np.intp]
    lacking: NDArray[np.bool_] | None
    chosen: dict[tuple[str, ...], NDArray[np.intp]]

    @classmethod
    def of(
        cls, names: Iterable[str], counts: int = 0, entries: Any = None, lacking: NDArray[np.bool_] | None = None
    ) -> "_Plan":
        return cls({name: index for index, name in enumerate(names)}, counts, entries, lacking, {})


@lru_cache(KINDS * REMEMBERED)
def _plan(scheme: Scheme, paths: tuple[str, ...], absent: frozenset[str]) -> _Plan:
    begins = np.cumsum([0, *scheme.sizes[:-1]]).tolist()
    found: dict[str, dict[int, int]] = {}
    of_counts: dict[str, None] = {}
    for record, path in enumerate(paths):
        for table in scheme.layout.parts(path):
            for row in (row for row in table.rows if not row.shape):
                if row.kind == "count":
                    of_counts[row.name] = None
                of_row, name = found.setdefault(row.name, {}), name_of(path, row.name)
                if scheme.key_of(name) == table.key and name not in absent:
                    span = scheme.spans[name]
                    of_row[record] = begins[span.section] + span.start
    names = [*of_counts, *(name for name in found if name not in of_counts)]
    entries = np.zeros((len(names), len(paths)), np.intp)
    lacking = np.ones(entries.shape, bool)
    for index, name in enumerate(names):
        for record, entry in found[name].items():
            entries[index, record], lacking[index, record] = entry, False
    return _Plan.of(names, len(of_counts), entries, lacking if lacking.any() else None)
