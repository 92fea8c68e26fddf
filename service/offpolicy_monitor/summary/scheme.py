"""Scheme: where the rows of some tables stand in one buffer, and how the buffer of one scheme is put into another's.

The buffer is int64 and float64 one after the other: sums of whole numbers, sums of fractions, minima, maxima. So a
merge of two buffers of one scheme is an array operation per section. Knows no table by name, and no values.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import Final, NamedTuple

from offpolicy_monitor.summary.remembered import remembering
from offpolicy_monitor.summary.rows import REMEMBERED as TABLES_REMEMBERED
from offpolicy_monitor.summary.rows import SPARSE, Layout, Row, Table, name_of

#: The sections of a buffer, in order.
COUNTS, SUMS, MINIMA, MAXIMA = SECTIONS = range(4)

#: Schemes at hand: those of a run's shards come back with every step.
REMEMBERED: Final = 512
#: The weight of all that are remembered: that of 512 shards which share 300 tables and have four of their own is two
#: thirds of it. A scheme takes up to 2 KiB for each.
MOST_WEIGHT: Final = 1 << 15
#: Tables of a base that weigh as much as one of a scheme's own: they are there once.
OF_BASE: Final = 8


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


#: By section, where the entries of one buffer stand in another.
Runs = tuple[Sequence[Run], ...]


class Block(NamedTuple):
    """A table by itself: its rows stand one after the other in each section, and spans count from where they begin.

    sizes   [4] entries of each section
    rows    by whole name
    sparse  names of rows that stand beside the buffer
    """

    sizes: Sequence[int]
    rows: Mapping[str, Position]
    sparse: Sequence[str]
    deviations: Mapping[str, Deviation]


class Spans(Mapping[str, Span]):
    """The spans of a scheme's rows by whole name; each is worked out when it is looked up."""

    def __init__(self, scheme: "Scheme") -> None:
        self._scheme = scheme
        self._known: dict[str, Span] = {}

    def __getitem__(self, name: str) -> Span:
        found = self._known.get(name)
        if found is None and self._scheme.base is not self._scheme:
            found = self._scheme.base.spans.get(name)
        if found is None:
            key = self._scheme.key_of(name)
            found = None if key is None else self._scheme.moved(key, self._scheme.block(key).rows[name].span)
            if found is None:
                raise KeyError(name)
            self._known[name] = found
        return found

    def __iter__(self) -> Iterator[str]:
        for key in self._scheme.keys:
            yield from (name for name, row in self._scheme.block(key).rows.items() if row.span is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)


class Scheme:
    """The rows of the tables at `keys` that a stored version had, each with its span. One object for equal schemes.

    Shards of many ranks differ in the last tables alone, those `of_shard`. The scheme of all before these is the `base`
    of them all: what stands there stands in each of them at the same entries of its section, so that whoever looks for
    it asks the base, which is there from another shard.

    own         the keys of the tables that the base lacks
    mine        the same; of a base all keys
    sizes       [4] entries of each section
    begins      [4] where each section begins in the buffer
    sparse      names of rows that stand beside the buffer
    deviations  by name, the rows that merge as sums of squared distances
    grows       of a base, the scheme on it that a union was last made to go on from: one of many shards grows
    """

    def __init__(self, layout: Layout, keys: tuple[str, ...], version: int) -> None:
        self.layout, self.keys, self.version = layout, keys, version
        number = len(keys)
        while number and layout.at(keys[number - 1]).of_shard:
            number -= 1
        self.base: Scheme = scheme_of(layout, keys[:number], version) if number < len(keys) else self
        self.own, shared = keys[number:], number < len(keys)
        self.mine = self.own if shared else keys
        begun = self._begun()
        self.tables: dict[str, Table] = {**begun.tables} if begun else {}
        self.spans: Mapping[str, Span] = Spans(self)
        self.sparse: list[str] = [*begun.sparse] if begun else []
        self.starts: dict[str, Sequence[int]] = {**begun.starts} if begun else {}
        self._under: dict[str, tuple[str, ...]] = {}
        self._rows: dict[str, Sequence[Position]] = {}
        self.deviations: dict[str, Deviation] = {**begun.deviations} if begun else {}
        self.grows: Scheme | None = None
        self.sizes: list[int] = [*begun.sizes] if begun else [0, 0, 0, 0]
        for key in keys[len(begun.keys) :] if begun else keys:
            block = self.block(key)
            self.tables[key], self.starts[key] = layout.at(key), tuple(self.sizes)
            self.sizes = list(map(int.__add__, self.sizes, block.sizes))
            self.sparse += block.sparse
            for name, found in block.deviations.items():
                self.deviations[name] = _moved(found, self.starts[key])
        self.begins: tuple[int, ...] = (0, *accumulate(self.sizes[:-1]))

    def _begun(self) -> "Scheme | None":
        """The scheme that these keys go on from, whose entries are not worked out again."""
        if self.base is self:
            return None
        first = self.base.grows
        return first if first is not None and self.keys[: len(first.keys)] == first.keys else self.base

    @property
    def weight(self) -> int:
        """What it takes, in tables."""
        return len(self.mine) + len(self.keys) // OF_BASE

    def block(self, key: str) -> Block:
        """The rows of a table by themselves."""
        return block_of(self.layout, key, self.version)

    def key_of(self, name: str) -> str | None:
        """The key of the table that has a row of this whole name, if any."""
        path = name
        while path:
            for table in self.paths.get(path, ()):
                if name in self.block(table.key).rows:
                    return table.key
            path = path.rpartition("/")[0]
        return None

    def rows(self, key: str) -> Sequence[Position]:
        """The rows of a table."""
        if self.base is not self and key in self.base.tables:
            return self.base.rows(key)
        found = self._rows.get(key)
        if found is None:
            rows = self.block(key).rows.values()
            found = self._rows[key] = [Position(row, name, self.moved(key, span)) for row, name, span in rows]
        return found

    def moved(self, key: str, span: Span | None) -> Span | None:
        """Where the span of a row of a table stands here."""
        if span is None:
            return None
        begin = self.starts[key][span.section]
        return Span(span.section, begin + span.start, begin + span.stop, span.shape)

    def under(self, prefix: str) -> Sequence[str]:
        """The paths that begin with the parts of `prefix`."""
        found = self._under.get(prefix)
        if found is None:
            before = self.base.under(prefix) if self.base is not self else ()
            own = dict.fromkeys(self.tables[key].path for key in self.mine)
            found = self._under[prefix] = (*before, *(path for path in own if path.startswith(f"{prefix}/")))
        return found

    def name_at(self, section: int, index: int) -> str:
        """The row that has an entry of a section; StopIteration past its end."""
        return next(
            name for name, span in self.spans.items() if span.section == section and span.start <= index < span.stop
        )

    @cached_property
    def paths(self) -> Mapping[str, Sequence[Table]]:
        """The tables by their path."""
        found = {} if self.base is self else {**self.base.paths}
        for key in self.mine:
            table = self.tables[key]
            found[table.path] = (*found.get(table.path, ()), table)
        return found


def _moved(found: Deviation, begins: Sequence[int]) -> Deviation:
    """What counts from where its table begins."""
    entry, tokens, total = found
    return Deviation(begins[SUMS] + entry, begins[COUNTS] + tokens, begins[SUMS] + total)


@lru_cache(TABLES_REMEMBERED)
def block_of(layout: Layout, key: str, version: int) -> Block:
    """The table at a key, as a stored version had its rows."""
    table, sizes, rows = layout.at(key), [0, 0, 0, 0], dict[str, Position]()
    for row in (row for row in table.rows if row.since <= version):
        name, span = name_of(table.path, row.name), None
        if SPARSE not in row.shape:
            section, shape = section_of(row), tuple(map(int, row.shape))
            start = sizes[section]
            sizes[section] = stop = start + math.prod(shape)
            span = Span(section, start, stop, shape)
        rows[name] = Position(row.name, name, span)
    begins = {position.row: position.span.start for position in rows.values() if position.span is not None}
    deviations = {
        name_of(table.path, row.name): Deviation(*(begins[needed] for needed in (row.name, *row.of)))
        for row in table.rows
        if row.merge == "deviation" and row.name in begins
    }
    return Block(sizes, rows, [name for name, position in rows.items() if position.span is None], deviations)


def section_of(row: Row) -> int:
    """The section in which a row stands."""
    if row.merge in ("min", "max"):
        return MINIMA if row.merge == "min" else MAXIMA
    return COUNTS if row.kind == "count" else SUMS


def scheme_of(layout: Layout, keys: tuple[str, ...], version: int = 0) -> Scheme:
    """The scheme of the tables at `keys`, as a stored version had their rows; KeyError for one that is not declared."""
    return _scheme_of(layout, keys, version or layout.version)


@remembering(lambda made, *asked: made.weight, MOST_WEIGHT)
def _scheme_of(layout: Layout, keys: tuple[str, ...], version: int) -> Scheme:
    return Scheme(layout, keys, version)


#: That of no table, whatever the layout.
EMPTY: Final = Scheme(Layout(()), (), 0)


@lru_cache(REMEMBERED)
def union(schemes: tuple[Scheme, ...]) -> Scheme:
    """The scheme of all tables that any of these has, in the order in which they come."""
    filled = [scheme for scheme in schemes if scheme.keys]
    if not filled:
        return EMPTY
    first = filled[0]
    keys = {
        **dict.fromkeys(first.keys),
        **dict.fromkeys(key for scheme in filled[1:] for key in _beyond(scheme, first)),
    }
    first.base.grows = first
    return scheme_of(first.layout, first.keys if len(keys) == len(first.keys) else tuple(keys))


def _beyond(scheme: Scheme, first: Scheme) -> Sequence[str]:
    """The keys of a scheme, but for those of a base that both have."""
    return scheme.own if scheme.base is first.base else scheme.keys


@lru_cache(REMEMBERED)
def runs(source: Scheme, target: Scheme) -> Runs:
    """The same as `runs_between`, remembered: of what was stored, whose schemes come back."""
    return runs_between(source, target)


def runs_between(source: Scheme, target: Scheme) -> Runs:
    """By section, where the entries of one buffer stand in another, whose scheme has all of its rows."""
    alike = source.layout is target.layout and source.version == target.version
    if alike and target.keys[: len(source.keys)] == source.keys:  # of a merge that grows: nothing has moved
        return tuple([Run(0, size, 0)] if size else [] for size in source.sizes)
    ahead, keys = (
        ([0] * len(SECTIONS), source.keys) if source.base is not target.base else (source.base.sizes, source.own)
    )
    found = tuple([Run(0, size, 0)] if size else [] for size in ahead)
    for key in keys:
        block, begins = source.block(key), source.starts[key]
        if block is target.block(key):
            for section, (size, begin, into) in enumerate(zip(block.sizes, begins, target.starts[key], strict=True)):
                _join(found[section], begin, begin + size, into)
            continue
        for _, name, span in source.rows(key):
            if span is not None:
                _join(found[span.section], span.start, span.stop, target.spans[name].start)
    return found


def _join(found: list[Run], start: int, stop: int, into: int) -> None:
    """Add a run, to the one before where it goes on there."""
    if start == stop:
        return
    if found and found[-1].stop == start and found[-1].into + start - found[-1].start == into:
        found[-1] = Run(found[-1].start, stop, found[-1].into)
    else:
        found.append(Run(start, stop, into))
