"""Arrays: the numbers of a summary by the names of their rows, in one buffer that merges by a few array operations.

`Arrays()` has nothing. A row that an older stored version lacks is `absent` from every merge with it (summary.merge),
whatever its shape: what was not counted is never taken for zero.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from offpolicy_monitor.summary.rows import Layout, name_of
from offpolicy_monitor.summary.scheme import (
    COUNTS,
    EMPTY,
    MAXIMA,
    MINIMA,
    SECTIONS,
    SUMS,
    Scheme,
    Span,
    runs,
    scheme_of,
)
from offpolicy_monitor.summary.together import together

Array = NDArray[Any]
#: An array whose entries stand at any whole number: the numbers, ascending, and the counts there.
Sparse = tuple[NDArray[np.int64], NDArray[np.int64]]
#: What is read of the tables at a path: by the names of their rows the single numbers, and rows that are several.
OfTables = tuple[dict[str, float], dict[str, list[float]]]
Number = TypeVar("Number")
#: What a section holds before anything is counted.
NOTHING: Final = (0, 0.0, np.inf, -np.inf)
NOWHERE: Final[Sparse] = (np.zeros(0, np.int64), np.zeros(0, np.int64))


class Arrays:
    """Rows by name (`gaps/total/k3`), each an array that must not be changed once others can see it.

    Of a small shard one count in a hundred is not zero: what is measured or read has only those until somebody asks for
    all of `counts`, which are the most of its buffer.

    fractions  sums, minima and maxima, float64: parts of `_fractions`, the buffer from where its counts end
    sparse     by name, where rows of no fixed length are not zero
    absent     names of rows, and keys of declared tables, that some of what was merged did not count
    _ahead     by path, what was read of its tables before it was asked for
    """

    __slots__ = ("_ahead", "_counts", "_filled", "_fractions", "absent", "fractions", "scheme", "sparse")

    def __init__(
        self,
        scheme: Scheme | None = None,
        buffer: NDArray[np.int64] | None = None,
        sparse: Mapping[str, Sparse] | None = None,
        absent: frozenset[str] = frozenset(),
    ) -> None:
        scheme = EMPTY if scheme is None else scheme
        if buffer is None:
            self._hold(scheme, np.zeros(scheme.sizes[COUNTS], np.int64), None, room_for_fractions(scheme))
        else:
            counts = scheme.sizes[COUNTS]
            self._hold(scheme, buffer[:counts], None, buffer[counts:].view(np.float64))
        self.sparse: dict[str, Sparse] = dict(sparse or {})
        self.absent = absent

    @classmethod
    def filled_at(cls, scheme: Scheme, filled: Sparse, fractions: NDArray[np.float64]) -> "Arrays":
        """Those whose counts are zero but at some entries, in ascending order; `fractions` as of room_for_fractions."""
        arrays = cls.__new__(cls)
        arrays._hold(scheme, None, filled, fractions)
        arrays.sparse, arrays.absent = {}, frozenset()
        return arrays

    @classmethod
    def of_nothing(cls, scheme: Scheme) -> "Arrays":
        """Rows that have counted nothing, whose counts are not written out."""
        return cls.filled_at(scheme, NOWHERE, room_for_fractions(scheme))

    def _hold(
        self,
        scheme: Scheme,
        counts: NDArray[np.int64] | None,
        filled: Sparse | None,
        fractions: NDArray[np.float64],
    ) -> None:
        """Counts, or where they are not zero, and fractions."""
        self.scheme, self._counts, self._filled, self._fractions = scheme, counts, filled, fractions
        self._ahead: dict[str, OfTables] = {}
        sums, minima = scheme.sizes[SUMS], scheme.sizes[SUMS] + scheme.sizes[MINIMA]
        self.fractions = fractions[:sums], fractions[sums:minima], fractions[minima:]

    @property
    def is_written_out(self) -> bool:
        """Whether all counts are there, and not only those that are not zero."""
        return self._counts is not None

    @property
    def filled(self) -> Sparse:
        """Where counts are not zero and what they are there, looked for once."""
        if self._filled is None:
            where = np.flatnonzero(self.counts != 0)  # of booleans: four times as fast
            self._filled = where, self.counts[where]
        return self._filled

    @property
    def counts(self) -> NDArray[np.int64]:
        """All of them."""
        if self._counts is None:
            self._counts = self.counts_between(0, self.scheme.sizes[COUNTS])
        return self._counts

    @property
    def every_fraction(self) -> NDArray[np.float64]:
        """Sums, minima and maxima, one after the other."""
        return self._fractions

    @property
    def sections(self) -> list[Array]:
        """The entries of each section of the scheme."""
        return [self.counts, *self.fractions]

    def section(self, number: int) -> Array:
        """One of these."""
        return self.counts if number == COUNTS else self.fractions[number - SUMS]

    def seen(self, number: int) -> Array:
        """The same to be read once: of counts that are not written out nothing is kept."""
        return self.counts_between(0, self.scheme.sizes[COUNTS]) if number == COUNTS else self.section(number)

    @property
    def buffer(self) -> NDArray[np.int64]:
        """All that is not sparse as the scheme lays it out, the bits of fractions as whole numbers; a copy."""
        return np.concatenate([self.counts, self._fractions.view(np.int64)])

    @property
    def nbytes(self) -> int:
        """Bytes that it takes."""
        counts = () if self._counts is None else (self._counts,)
        return sum(held.nbytes for held in (*counts, *(self._filled or ()), self._fractions))

    def counts_between(self, start: int, stop: int) -> NDArray[np.int64]:
        """A stretch of the counts."""
        if self._counts is not None:
            return self._counts[start:stop]
        found = self._written_out(start, stop)
        found.flags.writeable = False  # what is written there would not be kept
        return found

    def _written_out(self, start: int, stop: int) -> NDArray[np.int64]:
        where, counts = self.filled
        first, last = where.searchsorted(start), where.searchsorted(stop)
        found = np.zeros(stop - start, np.int64)
        found[where[first:last] - start] = counts[first:last]
        return found

    def count_at(self, entry: int) -> int:
        """One of the counts."""
        if self._counts is not None:
            return self._counts.item(entry)
        where, counts = self.filled
        found = int(where.searchsorted(entry))
        return counts.item(found) if found < len(where) and where.item(found) == entry else 0

    def counts_at(self, entries: NDArray[np.int64]) -> NDArray[np.int64]:
        """The counts at some entries, in their shape."""
        if self._counts is not None:
            return self._counts[entries]
        where, counts = self.filled
        if not len(where):
            return np.zeros(entries.shape, np.int64)
        found = where.searchsorted(entries)
        here: NDArray[np.int64] = counts.take(found, mode="clip") * (where.take(found, mode="clip") == entries)
        return here

    def fractions_at(self, entries: NDArray[np.int64]) -> NDArray[np.float64]:
        """The fractions at some entries of the buffer, in their shape."""
        return self._fractions[entries - self.scheme.sizes[COUNTS]]

    def copy(self) -> "Arrays":
        """The same in arrays of its own, counts and fractions, that may be changed."""
        return self._with(self.counts_to_change(), None, self._fractions.copy(), self.absent)

    def with_own_fractions(self) -> "Arrays":
        """The same with fractions of its own, that may be changed; the counts are of both."""
        return self._with(self._counts, self._filled, self._fractions.copy(), self.absent)

    def counts_to_change(self) -> NDArray[np.int64]:
        """All counts, in an array of its own."""
        return self._written_out(0, self.scheme.sizes[COUNTS]) if self._counts is None else self._counts.copy()

    def with_counts(self, counts: NDArray[np.int64] | None, filled: Sparse | None) -> "Arrays":
        """The same fractions with other counts: all of them, or where they are not zero."""
        return self._with(counts, filled, self._fractions, self.absent)

    def named_by(self, scheme: Scheme) -> "Arrays":
        """The same numbers by the names of a scheme in which they stand at the same entries."""
        found = self._with(self._counts, self._filled, self._fractions, self.absent)
        found.scheme = scheme
        return found

    def _with(
        self,
        counts: NDArray[np.int64] | None,
        filled: Sparse | None,
        fractions: NDArray[np.float64],
        absent: frozenset[str],
    ) -> "Arrays":
        """Other numbers of the same rows."""
        found = Arrays.__new__(Arrays)
        found._hold(self.scheme, counts, filled, fractions)
        found.sparse, found.absent = dict(self.sparse), absent
        return found

    @classmethod
    def of(cls, layout: Layout, tables: Mapping[str, Mapping[str, Any]]) -> "Arrays":
        """The arrays of tables by key, each with all of its rows by name: `{"cross": {"tokens": 7, ...}, ...}`.

        A sparse row is a pair of arrays. KeyError for a table or a row that is not declared or is missing.
        """
        arrays = cls(scheme_of(layout, tuple(tables)))
        for key, values in tables.items():
            rows = arrays.scheme.rows(key)
            if len(values) > len(rows):
                raise KeyError(f"{key}: {', '.join(sorted(values.keys() - {row.row for row in rows}))}")
            for row, name, span in rows:
                value = values[row]
                if span is None:
                    numbers, counts = value
                    arrays.sparse[name] = np.asarray(numbers, np.int64), np.asarray(counts, np.int64)
                elif span.shape:
                    arrays[name][...] = value
                else:
                    arrays.sections[span.section][span.start] = value
        return arrays

    def __getitem__(self, name: str) -> Array:
        """A row; KeyError where it is not there, or was not counted by all."""
        if name in self.absent:
            raise KeyError(name)
        return self.stored_at(self.scheme.spans[name])

    def stored_at(self, span: Span) -> Array:
        """What stands there, counted by all or not."""
        section, start, stop, shape = span
        found = self.counts_between(start, stop) if section == COUNTS else self.fractions[section - SUMS][start:stop]
        return found.reshape(shape)

    def get(self, name: str) -> Array | None:
        """A row, None where it is not there or was not counted by all."""
        return self[name] if name in self.scheme.spans and name not in self.absent else None

    def at(self, name: str) -> Sparse:
        """A row of no fixed length: where it is not zero, and what it is there; nowhere if not counted by all."""
        return NOWHERE if name in self.absent else self.sparse.get(name, NOWHERE)

    def __contains__(self, path: object) -> bool:
        """Whether there is a table at a path."""
        return path in self.scheme.paths

    def under(self, prefix: str) -> Iterable[str]:
        """The paths of tables that begin with the parts of `prefix`."""
        return self.scheme.under(prefix)

    def read_ahead(self, paths: tuple[str, ...]) -> None:
        """Read tables at several paths together, for `record` and `lists` to answer: all cost about as much as one."""
        self._ahead.update(self._read(paths))

    def record(self, path: str) -> dict[str, float]:
        """The single numbers of the tables at a path by the names of their rows; {} where there are none."""
        return (self._ahead.get(path) or self._read((path,))[path])[0]

    def lists(self, path: str) -> dict[str, list[float]]:
        """The rows of the tables at a path that are several numbers, by name: {} where there are none."""
        return (self._ahead.get(path) or self._read((path,))[path])[1]

    def _read(self, paths: tuple[str, ...]) -> "dict[str, OfTables]":
        """By path, the single numbers of the tables there, and the rows that are several."""
        scheme, base = self.scheme, self.scheme.base
        holder = base if all([path in base.paths or path not in scheme.paths for path in paths]) else scheme
        entries, tables = together(holder, paths)
        numbers = self.counts_at(entries[COUNTS]).tolist()
        for fractions, wanted in zip(self.fractions, entries[SUMS:], strict=True):
            numbers += fractions.take(wanted).tolist() if len(wanted) else ()
        found = {}
        for path, singles, lists in tables:
            single = self._counted(path, {row: numbers[index] for row, index in singles})
            found[path] = single, self._counted(path, {row: numbers[begin:end] for row, begin, end in lists})
        return found

    def _counted(self, path: str, rows: dict[str, Number]) -> dict[str, Number]:
        """Those of its rows that all have counted of what was merged."""
        if not self.absent:
            return rows
        return {row: numbers for row, numbers in rows.items() if name_of(path, row) not in self.absent}

    def columns(self, path: str) -> dict[str, Array]:
        """The rows of the tables at a path by their names."""
        rows = [row for table in self.scheme.paths[path] for row in self.scheme.rows(table.key)]
        return self._counted(path, {row: self.stored_at(span) for row, _, span in rows if span is not None})

    def without(self, keys: Iterable[str]) -> "Arrays":
        """The same but for some tables."""
        gone = set(keys)
        if not gone & set(self.scheme.keys):
            return self
        kept = scheme_of(self.scheme.layout, tuple(key for key in self.scheme.keys if key not in gone))
        arrays = Arrays(
            kept, None, {name: self.sparse[name] for name in kept.sparse if name in self.sparse}, self.absent
        )
        for section, found in zip(SECTIONS, runs(kept, self.scheme), strict=True):
            left, whole = arrays.section(section), self.seen(section)
            for start, stop, into in found:
                left[start:stop] = whole[into : into + stop - start]
        return arrays

    def lacking(self, absent: Iterable[str]) -> "Arrays":
        """The same where these rows, or tables by the key of their declaration, were not counted."""
        lost = self.absent | frozenset(absent)
        if not lost:
            return self
        gone = [key for key, table in self.scheme.tables.items() if table.declared in lost]
        left = self.without(gone)
        return left._with(left._counts, left._filled, left._fractions, lost)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Arrays) or self.absent != other.absent:
            return False
        if self.scheme is not other.scheme and (
            set(self.scheme.keys) != set(other.scheme.keys) or self.scheme.spans.keys() != other.scheme.spans.keys()
        ):
            return False
        sparse = self.sparse.keys() | other.sparse.keys()
        return self._has_rows_of(other) and all(
            np.array_equal(a, b) for name in sparse for a, b in zip(self.at(name), other.at(name), strict=True)
        )

    def _has_rows_of(self, other: "Arrays") -> bool:
        """Whether every row is the same in both."""
        if self.scheme is other.scheme:
            return all(np.array_equal(self.seen(section), other.seen(section)) for section in SECTIONS)
        spans, others = self.scheme.spans, other.scheme.spans
        return all(np.array_equal(self.stored_at(span), other.stored_at(others[name])) for name, span in spans.items())

    __hash__ = None


def filled(counts: Array) -> dict[int, float]:
    """The entries of an array that are not zero, by their index."""
    flat = counts.reshape(-1)
    indices = np.flatnonzero(flat != 0)
    return dict(zip(indices.tolist(), flat[indices].tolist(), strict=True))


def room_for_fractions(scheme: Scheme) -> NDArray[np.float64]:
    """Sums, minima and maxima of nothing, one after the other."""
    sums, minima, maxima = scheme.sizes[SUMS:]
    found = np.zeros(sums + minima + maxima)
    found[sums : sums + minima], found[sums + minima :] = NOTHING[MINIMA], NOTHING[MAXIMA]
    return found
