"""Scheme: where the rows of some tables stand in one buffer, and how the buffer of one scheme is put into another's.

The buffer is int64 and float64 one after the other: sums of whole numbers, sums of fractions, minima, maxima. So a
merge of two buffers of one scheme is an array operation a section. Knows no table by name, and no values.
"""

import math
from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Final, NamedTuple

from offpolicy_monitor.summary.layout import LAYOUT, Layout
from offpolicy_monitor.summary.rows import SPARSE, Row, Table, name_of

#: The sections of a buffer, in order.
COUNTS, SUMS, MINIMA, MAXIMA = SECTIONS = range(4)

#: Schemes at hand: those of a run's shards come back with every step.
REMEMBERED: Final = 512


class Span(NamedTuple):
    """Where a row stands in its section."""

    section: int
    start: int
    stop: int
    shape: tuple[int, ...]


class Deviation(NamedTuple):
    """Where a sum of squared distances from a mean stands among sums; the count among counts, the sum among sums."""

    place: int
    tokens: int
    total: int


class Run(NamedTuple):
    """Neighbours in a section that are neighbours in another scheme's too."""

    start: int
    stop: int
    into: int


class Scheme:
    """The rows of the tables at `keys` that a stored version had, each with its span. One object for equal schemes.

    `sizes` [4]: entries of each section. `sparse`: names of rows that stand beside the buffer.
    """

    def __init__(self, layout: Layout, keys: tuple[str, ...], version: int) -> None:
        self.layout, self.keys, self.version = layout, keys, version
        self.tables: Mapping[str, Table] = {key: layout.at(key) for key in keys}
        self.spans: dict[str, Span] = {}
        self.sparse: list[str] = []
        self.sizes = [0, 0, 0, 0]
        for table in self.tables.values():
            for row in table.rows:
                if row.since <= version:
                    self._add(name_of(table.path, row.name), row)

    def _add(self, name: str, row: Row) -> None:
        if SPARSE in row.shape:
            self.sparse.append(name)
            return
        section = section_of(row)
        start = self.sizes[section]
        shape = tuple(map(int, row.shape))
        self.sizes[section] = stop = start + math.prod(shape)
        self.spans[name] = Span(section, start, stop, shape)

    @cached_property
    def deviations(self) -> Mapping[str, Deviation]:
        """By name, the rows that merge as sums of squared distances."""
        return {
            name: Deviation(*(self.spans[name_of(table.path, needed)].start for needed in (row.name, *row.of)))
            for table in self.tables.values()
            for row in table.rows
            if row.merge == "deviation" and (name := name_of(table.path, row.name)) in self.spans
        }

    @cached_property
    def paths(self) -> Mapping[str, Sequence[Table]]:
        """The tables by their path."""
        found: dict[str, list[Table]] = {}
        for table in self.tables.values():
            found.setdefault(table.path, []).append(table)
        return found


def section_of(row: Row) -> int:
    """The section in which a row stands."""
    if row.merge in ("min", "max"):
        return MINIMA if row.merge == "min" else MAXIMA
    return COUNTS if row.kind == "count" else SUMS


@lru_cache(REMEMBERED)
def scheme_of(keys: tuple[str, ...], layout: Layout = LAYOUT, version: int | None = None) -> Scheme:
    """The scheme of the tables at `keys`, as a stored version had their rows; KeyError for one that is not declared."""
    return Scheme(layout, keys, layout.version if version is None else version)


@lru_cache(REMEMBERED)
def union(schemes: tuple[Scheme, ...]) -> Scheme:
    """The scheme of all tables that any of these has, in the order in which they come."""
    first, *others = schemes
    if all(other.keys == first.keys for other in others):
        return scheme_of(first.keys, first.layout)
    return scheme_of(tuple(dict.fromkeys(key for scheme in schemes for key in scheme.keys)), first.layout)


@lru_cache(REMEMBERED)
def runs(source: Scheme, target: Scheme) -> tuple[Sequence[Run], ...]:
    """By section, where the entries of one buffer stand in another, whose scheme has all of its rows."""
    if source is target:
        return tuple((Run(0, size, 0),) for size in source.sizes)
    found: tuple[list[Run], ...] = ([], [], [], [])
    for name, span in source.spans.items():
        into = target.spans[name].start
        known = found[span.section]
        if known and known[-1].stop == span.start and known[-1].into + span.start - known[-1].start == into:
            known[-1] = known[-1]._replace(stop=span.stop)
        else:
            known.append(Run(span.start, span.stop, into))
    return found
