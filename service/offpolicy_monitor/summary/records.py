"""Records side by side: the single numbers of tables at several paths, so that a figure is one formula over all gaps,
or over all method rows, at once.

Formulas divide as they stand: what has no denominator comes out as NaN or infinity, and is answered as None.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from offpolicy_monitor.summary.arrays import Arrays
from offpolicy_monitor.summary.remembered import Once
from offpolicy_monitor.summary.rows import name_of
from offpolicy_monitor.summary.scheme import REMEMBERED, SUMS, Scheme
from offpolicy_monitor.summary.straight import ABSENT, Code, Straight, Written

Floats = NDArray[np.float64]
#: Figures of R records by name, [R] each.
Figures = Mapping[str, Floats]
#: Around formulas, which do not warn: what cannot be divided is absent.
SILENT: Final = np.errstate(divide="ignore", invalid="ignore", over="ignore")
#: Kinds of records that are read side by side of each scheme.
KINDS: Final = 8


@dataclass(frozen=True, eq=False)
class Wanted:
    """Names of figures that somebody looks at; None for all. One object for equal names, by which plans are kept."""

    names: frozenset[str] | None = None

    def __contains__(self, name: str) -> bool:
        return self.names is None or name in self.names


ALL: Final = Wanted()


class Records(Once):
    """The numbers [names, R] float64 of R records; NaN where a record lacks one, or some of what was merged did."""

    __slots__ = ("_made", "_numbers", "_plan")

    def __init__(self, numbers: Floats, plan: "_Plan") -> None:
        self._numbers, self._plan = numbers, plan
        self._made: dict[Any, Any] = {}

    @classmethod
    def at(cls, arrays: Arrays, paths: Iterable[str]) -> "Records":
        """The records at these paths."""
        return cls.of_kinds(arrays, (tuple(paths),))[0]

    @classmethod
    def of_kinds(cls, arrays: Arrays, kinds: tuple[tuple[str, ...], ...]) -> "list[Records]":
        """The records of several kinds, each at its own paths, read together."""
        scheme = arrays.scheme
        counts, fractions, order, plans = _plans(scheme.base, scheme.begins, kinds, arrays.absent)
        read = arrays.counts_at(counts), arrays.fractions_at(fractions)
        numbers: Floats = np.concatenate(read, dtype=np.float64)[order]
        found = []
        for plan in plans:
            of_kind = numbers[plan.begin : plan.end].reshape(plan.shape)
            if plan.lacking is not None:
                of_kind[plan.lacking] = np.nan
            found.append(cls(of_kind, plan))
        return found

    @classmethod
    def of(cls, records: Sequence[Mapping[str, float]], names: Sequence[str]) -> "Records":
        """The same of records one by one."""
        numbers = [[record.get(name, np.nan) for record in records] for name in names]
        lacking = np.array([[name not in record for record in records] for name in names])
        return cls(np.array(numbers, np.float64), _Plan.of(names, len(records), lacking=lacking))

    @classmethod
    def written(cls, arrays: Arrays, kinds: tuple[tuple[str, ...], ...], code: Code) -> "list[Records]":
        """The same, to write straight code with: its numbers are the counts of all kinds, then what is no count."""
        counts, fractions, order, plans = _plans(arrays.scheme.base, arrays.scheme.begins, kinds, arrays.absent)
        texts = np.array([f"n{number}" for number in range(len(counts) + len(fractions))], object)[order]
        found = []
        for plan in plans:
            of_kind = texts[plan.begin : plan.end].reshape(plan.shape)
            if plan.lacking is not None:
                of_kind[plan.lacking] = ABSENT
            found.append(cls(cast(Floats, Written(code, of_kind)), plan))
        return found

    def __len__(self) -> int:
        return self._plan.shape[1]

    def __getitem__(self, name: str) -> Floats:
        numbers: Floats = self._numbers[self._plan.row_of[name]]
        return numbers

    def rows(self, names: tuple[str, ...]) -> Floats:
        """[N, R] of some names."""
        chosen = self._plan.chosen.get(names)
        if chosen is None:
            chosen = self._plan.chosen[names] = np.array([self._plan.row_of[name] for name in names], np.intp)
        return self._numbers.take(chosen, 0)

    def lack(self, name: str) -> bool:
        """Whether some of them lack a number."""
        return self._plan.lacking is not None and bool(self._plan.lacking[self._plan.row_of[name]].any())

    @property
    def lacks(self) -> bytes:
        """Equal where the same records lack the same."""
        return self._plan.lacks


class Read(NamedTuple):
    """Straight code, and where the numbers that it takes are in a buffer: counts first."""

    straight: Straight
    counts: NDArray[np.intp]
    fractions: NDArray[np.intp]

    @classmethod
    def of(cls, arrays: Arrays, kinds: tuple[tuple[str, ...], ...], straight: Straight, taken: Sequence[int]) -> "Read":
        """Of code that was written with `Records.written` of the same kinds, and of which numbers it takes."""
        plans = _plans(arrays.scheme.base, arrays.scheme.begins, kinds, arrays.absent)
        entries = np.concatenate([plans.counts, plans.fractions])[np.array(taken, np.intp)]
        number = np.searchsorted(taken, len(plans.counts))
        return cls(straight, entries[:number], entries[number:])

    def __call__(self, arrays: Arrays) -> list[float]:
        """The results of a buffer in which all is there; raises NO_NUMBER where one of them is none."""
        numbers = np.concatenate([arrays.counts_at(self.counts), arrays.fractions_at(self.fractions)])
        return self.straight(numbers.tolist())


#: The figure of all records at once.
Formula = Callable[[Records], Floats]


@dataclass(frozen=True, eq=False)
class Formulas:
    """How figures of records are made: those that are wanted, of all records at once.

    means   figure -> a sum, and the count that it is divided by; all of these are one division
    others  figure -> any other formula
    needs   figure -> the sum without which a record has no such figure
    """

    means: Mapping[str, tuple[str, str]]
    others: Mapping[str, Formula]
    needs: Mapping[str, str] = field(default_factory=dict)

    def of(self, sums: Records, wanted: Wanted = ALL) -> Figures:
        """[R] each."""
        chosen = _chosen(self, wanted)
        parts, wholes = sums.rows(chosen.sums).reshape(2, len(chosen.means), len(sums))
        means = dict(zip(chosen.means, parts / wholes, strict=True)) if chosen.means else {}
        return means | {name: made(sums) for name, made in chosen.others}

    def needed(self, sums: Records, wanted: Wanted = ALL) -> Figures:
        """What each figure needs; NaN for a record that lacks it."""
        return {figure: sums[name] for figure, name in self.needs.items() if figure in wanted}

    def any(self, wanted: Wanted) -> bool:
        """Whether any of them is wanted."""
        return _chosen(self, wanted).any


class _Chosen(NamedTuple):
    """Of formulas what is wanted: means, their sums and then their counts, others; and whether anything is."""

    means: tuple[str, ...]
    sums: tuple[str, ...]
    others: Sequence[tuple[str, Formula]]
    any: bool


@lru_cache(REMEMBERED)
def _chosen(formulas: Formulas, wanted: Wanted) -> _Chosen:
    means = tuple(name for name in formulas.means if name in wanted)
    sums = tuple(formulas.means[name][index] for index in (0, 1) for name in means)
    others = [(name, made) for name, made in formulas.others.items() if name in wanted]
    return _Chosen(means, sums, others, bool(means or others or [name for name in formulas.needs if name in wanted]))


class _Plan(NamedTuple):
    """The names of records of a kind, and what they lack.

    row_of   the row of each name, counts first
    shape    of their numbers: names, records
    begin    where they begin among those of all kinds, and where they end
    lacking  [names, R] where there is none
    lacks    the same as bytes
    chosen   the indices of names that were asked for together
    """

    row_of: Mapping[str, int]
    shape: tuple[int, int]
    begin: int
    end: int
    lacking: NDArray[np.bool_] | None
    lacks: bytes
    chosen: dict[tuple[str, ...], NDArray[np.intp]]

    @classmethod
    def of(
        cls, names: Iterable[str], records: int, begin: int = 0, lacking: NDArray[np.bool_] | None = None
    ) -> "_Plan":
        rows = {name: index for index, name in enumerate(names)}
        end, lacks = begin + len(rows) * records, b"" if lacking is None else lacking.tobytes()
        return cls(rows, (len(rows), records), begin, end, lacking, lacks, {})


class _Plans(NamedTuple):
    """Where the numbers of records of several kinds are.

    counts     entries in the buffer, of what is lacking any
    fractions  the same of what is no count
    order      of both, one after the other: by kinds, then by names
    """

    counts: NDArray[np.intp]
    fractions: NDArray[np.intp]
    order: NDArray[np.intp]
    plans: Sequence[_Plan]


@lru_cache(KINDS * REMEMBERED)
def _plans(
    scheme: Scheme, begins: tuple[int, ...], kinds: tuple[tuple[str, ...], ...], absent: frozenset[str]
) -> _Plans:
    """Where they are in buffers of this base whose sections begin there; they are in no table of a shard alone."""
    plans, entries, are_counts, begin = [], [], [], 0
    for paths in kinds:
        names, counts, of_kind = _entries(scheme, begins, paths, absent)
        lacking = of_kind < 0
        of_kind[:counts][lacking[:counts]], of_kind[counts:][lacking[counts:]] = 0, begins[SUMS]
        plans.append(_Plan.of(names, len(paths), begin, lacking if lacking.any() else None))
        entries.append(of_kind.ravel())
        are_counts.append(np.arange(of_kind.size) < counts * len(paths))
        begin = plans[-1].end
    every, is_count = np.concatenate(entries), np.concatenate(are_counts)
    order = np.argsort(np.argsort(~is_count, kind="stable"))
    return _Plans(every[is_count], every[~is_count], order, plans)


def _entries(
    scheme: Scheme, begins: tuple[int, ...], paths: tuple[str, ...], absent: frozenset[str]
) -> tuple[Sequence[str], int, NDArray[np.intp]]:
    """Names of the records of a kind, how many of them are counts, and their entries [names, R]; -1 for none."""
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
    entries = [[found[name].get(record, -1) for record in range(len(paths))] for name in names]
    return names, len(of_counts), np.array(entries, np.intp).reshape(len(names), len(paths))
