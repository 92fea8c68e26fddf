"""Rows: how a summary's content is declared. A row is one array, a table the rows that a summary has all or none of.

Everything else follows from these declarations: the buffer and how it merges (summary.arrays), the stored form, the
checks of what trainers reduced, and the tables of docs/summary.md. Knows no table by name.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Final, Literal, TypedDict, Unpack

from offpolicy_monitor.vocabulary import EXPERT_IDS, GAP_LOGPROBS, GAPS, LOGPROBS

#: A count is a whole number from 0 on (int64), a number any finite fraction (float64), a magnitude one from 0 on.
Kind = Literal["count", "number", "magnitude"]
#: `deviation` is a sum of squared distances from the mean of `of`: a merge adds what the means of two sides are apart.
Merge = Literal["sum", "min", "max", "deviation"]
Names = tuple[str, ...]

#: The stored versions that came before rows were declared: which of a table's rows they have, each summary tells.
NAMED: Final = 2
#: The first stored version in which a summary is its arrays. A row that is added takes the version after the newest
#: that any row has, and what was stored once stays declared: its position in a buffer follows from all rows.
AS_ARRAYS: Final = 3

MOST_LAYERS: Final = 1024
MOST_K: Final = 256
#: What a name in a path may stand for; any other name for any text without a slash.
NAMES: Final[Mapping[str, frozenset[str]]] = {
    "{gap}": frozenset(GAPS),
    "{column}": frozenset(("sampling", "old", "difference")),
    "{layers}": frozenset(map(str, range(1, MOST_LAYERS + 1))),
    "{k}": frozenset(map(str, range(1, MOST_K + 1))),
}

#: In needs of tables: the gap of a path, or of the method row there, and the experts of both of its policies.
OF_GAP, EXPERTS_OF_GAP = "{gap}", "experts of {gap}"
#: What a name in needs may stand for: arrays, of that gap.
STAND_FOR: Final[Mapping[str, Names]] = {**GAP_LOGPROBS, OF_GAP: LOGPROBS, EXPERTS_OF_GAP: EXPERT_IDS}
#: The field of the envelope that tables need.
POLICY_VERSION: Final = "policy_version"

#: Paths of tables that are looked up again and again; those of hosts and labels come and go.
REMEMBERED: Final = 1 << 13

#: Between a path and a part: names in paths are percent-encoded, so that they have none.
PART: Final = "#"

#: The length of an array whose entries stand at any whole number: kept as numbers and values.
SPARSE: Final = -1


@dataclass(frozen=True)
class Row:
    """An array of a summary.

    shape    () for one number; a name stands for the number at that part of the table's path
    since    the stored version that first had it: figures of a merge with an older summary that lacks it are absent
    of       what the declared merge needs beside the row itself: the rows of a count and of a sum in the same table
    total    the row (at a whole path) that the entries of this one add up to
    at_most  rows of which this counts, or adds up, a part; a sum of either sign is no further from 0 than they are
    extreme_of  of an extreme: the rows of a count and of a sum, whose mean is not beyond it
    square_of   of a sum of squares: the rows of a count and of the sum of what is squared
    product_of  of a sum of products: the rows of a count and of the sums of squares of both factors
    product  whether it is a sum of squares or of products, which no figure squares again: its limit is LARGEST_SUM,
             that of other sums LARGEST_NUMBER (summary.sums)

    A name without a slash is that of a row of the same record, one with a slash that of a row at a whole path.
    """

    name: str
    kind: Kind
    meaning: str = ""
    shape: tuple[int | str, ...] = ()
    merge: Merge = "sum"
    since: int = NAMED
    of: Names = ()
    total: str = ""
    at_most: Names = ()
    extreme_of: Names = ()
    square_of: Names = ()
    product_of: Names = ()
    product: bool = False

    def at(self, sizes: Mapping[str, str]) -> "Row":
        """This row where the names of its table's path stand for these."""
        shape = tuple(size if isinstance(size, int) else int(sizes[size]) for size in self.shape)
        others = {field: tuple(name.format_map(sizes) for name in getattr(self, field)) for field in _OTHERS}
        return replace(self, shape=shape, total=self.total.format_map(sizes), **others)

    @cached_property
    def others(self) -> Names:
        """The rows whose numbers bound those of this one."""
        return (*filter(None, (self.total,)), *(name for field in _OTHERS for name in getattr(self, field)))

    def speaks_of(self, name: str) -> bool:
        """Whether the row depends on what a name of its table's path stands for."""
        return name in self.shape or any(f"{{{name}}}" in other for other in self.others)


#: The fields of a row that name others which bound it.
_OTHERS: Final = ("at_most", "extreme_of", "square_of", "product_of")


class Declared(TypedDict, total=False):
    """What is said of a row beside its name, kind, meaning, shape, and what it is at most."""

    merge: Merge
    since: int
    total: str
    extreme_of: Names
    square_of: Names
    product_of: Names
    product: bool


def count(
    name: str, meaning: str = "", *shape: int | str, at_most: str | Names = (), **declared: Unpack[Declared]
) -> Row:
    """A count."""
    return Row(name, "count", meaning, shape, at_most=_names(at_most), **declared)


def number(
    name: str, meaning: str = "", *shape: int | str, at_most: str | Names = (), **declared: Unpack[Declared]
) -> Row:
    """A sum, or an extreme, of either sign."""
    return Row(name, "number", meaning, shape, at_most=_names(at_most), **declared)


def magnitude(
    name: str, meaning: str = "", *shape: int | str, at_most: str | Names = (), **declared: Unpack[Declared]
) -> Row:
    """A sum, or an extreme, that is never negative."""
    return Row(name, "magnitude", meaning, shape, at_most=_names(at_most), **declared)


def _names(of: str | Names) -> Names:
    return (of,) if isinstance(of, str) else of


@dataclass(frozen=True)
class Table:
    """Rows that a summary has all or none of, at every path that fits `path`: `gaps/{gap}` stands for three.

    part   tables of one path are one record: the part that has no name is always there, the others where it is said
    needs  what must have been sent, all of it: arrays and fields of the envelope, or what STAND_FOR has
    when   in which other cases alone there is one, in words of docs; empty where it needs no more
    since  the stored version that first had it, and with it every row that is not later still
    required  whether there is one of every gap with a token
    filled    whether its first row, one count, is never 0 where there is one
    summed_from  the array that a sum of it which is too large comes from
    of_shard  whether the path tells which shard it is of: there are as many as ranks, and they stand last in a buffer
    declared  of a table at a path: the key under which it is declared
    """

    path: str
    rows: tuple[Row, ...]
    meaning: str = ""
    part: str = ""
    needs: Names = ()
    when: str = ""
    since: int = NAMED
    required: bool = False
    filled: bool = False
    summed_from: str = "logprobs"
    of_shard: bool = False
    declared: str = ""

    def __post_init__(self) -> None:
        if self.since > NAMED:
            rows = tuple(replace(row, since=max(row.since, self.since)) for row in self.rows)
            object.__setattr__(self, "rows", rows)

    @property
    def key(self) -> str:
        """The path, and the part where it has a name: `batch#lag`."""
        return f"{self.path}{PART}{self.part}" if self.part else self.path

    @cached_property
    def by_name(self) -> Mapping[str, Row]:
        """The rows by their names."""
        return {row.name: row for row in self.rows}

    def at(self, path: str) -> "Table":
        """This table at a path that fits its own: the names of the path filled in, in shapes too."""
        names = dict(zip(self.path.split("/"), path.split("/"), strict=True))
        sizes = {name.strip("{}"): part for name, part in names.items() if name.startswith("{")}
        of = tuple(sizes[name] for name in self._named)
        if of not in self._filled:
            self._filled[of] = tuple(row.at(sizes) for row in self.rows)
        return replace(self, path=path, rows=self._filled[of], declared=self.key)

    @cached_property
    def _named(self) -> tuple[str, ...]:
        """The names of the path that rows speak of; those of a shard they do not, so that shards share rows."""
        names = (part[1:-1] for part in self.path.split("/") if part.startswith("{"))
        return tuple(name for name in names if any(row.speaks_of(name) for row in self.rows))

    @cached_property
    def _filled(self) -> dict[tuple[str, ...], tuple[Row, ...]]:
        return {}

    @cached_property
    def names(self) -> frozenset[str]:
        """The names of the rows."""
        return frozenset(self.by_name)


class Layout:
    """Tables by the keys at which a summary may have them. A key is a path, and the part of a table after PART.

    `version`: the newest stored version that any of them is of.
    """

    def __init__(self, tables: Iterable[Table]) -> None:
        self.tables = tuple(tables)
        self.version = max((AS_ARRAYS, *(row.since for table in self.tables for row in table.rows)))
        self._by_length: dict[tuple[str, int], list[Table]] = {}
        for table in self.tables:
            parts = table.path.split("/")
            self._by_length.setdefault((parts[0], len(parts)), []).append(table)
        self.parts = lru_cache(REMEMBERED)(self._parts)

    def at(self, key: str) -> Table:
        """The table at a key, with the names of its path filled in; KeyError where none is declared there."""
        path, _, part = key.partition(PART)
        for table in self.parts(path):
            if table.part == part:
                return table
        raise KeyError(key)

    def _parts(self, path: str) -> tuple[Table, ...]:
        """The tables that make the record at a path; none where none is declared."""
        parts = path.split("/")
        known = self._by_length.get((parts[0], len(parts)), ())
        return tuple(table.at(path) for table in known if _fits(table.path.split("/"), parts))


def _fits(pattern: list[str], parts: list[str]) -> bool:
    return all(
        part in NAMES.get(name, (part,)) if name.startswith("{") else name == part
        for name, part in zip(pattern, parts, strict=True)
    )


def name_of(path: str, row: str) -> str:
    """The whole name of a row: a table that is one array has a row without a name of its own."""
    return f"{path}/{row}" if row else path
