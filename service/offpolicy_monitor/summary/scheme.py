"""Scheme: where the rows of some tables stand in one buffer, and how the buffer of one scheme is put into another's.

The buffer is int64 and float64 one after the other: sums of whole numbers, sums of fractions, minima, maxima. So a
merge of two buffers of one scheme is an array operation a section. Knows no table by name, and no values.
"""

import math
from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Final, NamedTuple

from offpolicy_monitor.summary.rows import SPARSE, Layout, Row, Table, name_of

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


class Position(NamedTuple):
    """A row of a table: its name there, its whole name, and where it stands; None for one beside the buffer."""

    row: str
    name: str
    span: Span | None


class Deviation(NamedTuple):
    """Where a sum of squared distances from a mean stands among sums; the count among counts, the sum among sums."""

    entry: int
    tokens: int
    total: int


class Run(NamedTuple):
    """Neighbours in a section that are neighbours in another scheme's too."""

    start: int
    stop: int
    into: int


class Scheme:
    """The rows of the tables at `keys` that a stored version had, each with its span. One object for equal schemes.

    sizes   [4] entries of each section
    key_of  the key of each row's table, by the name of the row
    sparse  names of rows that stand beside the buffer
    """

    def __init__(self, layout: Layout, keys: tuple[str, ...], version: int) -> None:
        self.layout, self.keys, self.version = layout, keys, version
        self.tables: Mapping[str, Table] = {key: layout.at(key) for key in keys}
        self.spans: dict[str, Span] = {}
        self.sparse: list[str] = []
        self.key_of: dict[str, str] = {}
        self.sizes = [0, 0, 0, 0]
        self._under: dict[str, tuple[str, ...]] = {}
        for key, table in self.tables.items():
            for row in table.rows:
                if row.since <= version:
                    self._add(key, name_of(table.path, row.name), row)

    def _add(self, key: str, name: str, row: Row) -> None:
        self.key_of[name] = key
        if SPARSE in row.shape:
            self.sparse.append(name)
            return
        section = section_of(row)
        start = self.sizes[section]
        shape = tuple(map(int, row.shape))
        self.sizes[section] = stop = start + math.prod(shape)
        self.spans[name] = Span(section, start, stop, shape)

    @cached_property
    def rows_of(self) -> Mapping[str, Sequence[Position]]:
        """The rows of each table, by its key."""
        found: dict[str, list[Position]] = {key: [] for key in self.keys}
        for name, key in self.key_of.items():
            row = name.removeprefix(self.tables[key].path).removeprefix("/")
            found[key].append(Position(row, name, self.spans.get(name)))
        return found

    def under(self, prefix: str) -> Sequence[str]:
        """The paths that begin with the parts of `prefix`."""
        found = self._under.get(prefix)
        if found is None:
            found = self._under[prefix] = tuple(path for path in self.paths if path.startswith(f"{prefix}/"))
        return found

    def name_at(self, section: int, index: int) -> str:
        """The row that has an entry of a section; StopIteration past its end."""
        return next(
            name for name, span in self.spans.items() if span.section == section and span.start <= index < span.stop
        )

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
def scheme_of(layout: Layout, keys: tuple[str, ...], version: int = 0) -> Scheme:
    """The scheme of the tables at `keys`, as a stored version had their rows; KeyError for one that is not declared."""
    return Scheme(layout, keys, version or layout.version)


#: That of no table, whatever the layout.
EMPTY: Final = Scheme(Layout(()), (), 0)


@lru_cache(REMEMBERED)
def union(schemes: tuple[Scheme, ...]) -> Scheme:
    """The scheme of all tables that any of these has, in the order in which they come."""
    filled = [scheme for scheme in schemes if scheme.keys]
    if not filled:
        return EMPTY
    keys = dict.fromkeys(key for scheme in filled for key in scheme.keys)
    return scheme_of(filled[0].layout, filled[0].keys if len(keys) == len(filled[0].keys) else tuple(keys))


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
