"""Arrays: the numbers of a summary by the names of their rows, in one buffer that merges by a few array operations.

A monoid: `Arrays()` is the identity, `merged` associative and commutative up to the rounding of float64 sums. A row
that an older stored version lacks is `absent` from every merge with it: what was not counted is never taken for zero.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

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
    Run,
    Scheme,
    runs,
    scheme_of,
    union,
)

Array = NDArray[Any]
#: An array whose entries stand at any whole number: the numbers, ascending, and the counts there.
Sparse = tuple[NDArray[np.int64], NDArray[np.int64]]
#: What a section holds before anything is counted.
NOTHING: Final = (0, 0.0, np.inf, -np.inf)
#: Of counts, the share that is not zero from which on all of them are added: one alone takes longer than one of many.
FEW: Final = 1 / 16
NOWHERE: Final[Sparse] = (np.zeros(0, np.int64), np.zeros(0, np.int64))


class Arrays:
    """Rows by name (`gaps/total/k3`), each an array that must not be changed once others can see it.

    sections  the entries of each section of the scheme, all of them parts of `buffer` [n] int64
    sparse    by name, where rows of no fixed length are not zero
    absent    names of rows, and keys of declared tables, that some of what was merged did not count
    """

    __slots__ = ("_filled", "absent", "buffer", "scheme", "sections", "sparse")

    def __init__(
        self,
        scheme: Scheme | None = None,
        buffer: NDArray[np.int64] | None = None,
        sparse: Mapping[str, Sparse] | None = None,
        absent: frozenset[str] = frozenset(),
    ) -> None:
        self.scheme = EMPTY if scheme is None else scheme
        self.buffer = np.zeros(sum(self.scheme.sizes), np.int64) if buffer is None else buffer
        self.sections = _sections(self.scheme, self.buffer)
        if buffer is None:
            for section in (MINIMA, MAXIMA):
                self.sections[section].fill(NOTHING[section])
        self.sparse: dict[str, Sparse] = dict(sparse or {})
        self.absent = absent
        self._filled: Sparse | None = None

    @property
    def filled(self) -> Sparse:
        """Where counts are not zero and what they are there, looked for once: a small shard has one in a hundred."""
        if self._filled is None:
            counts = self.sections[COUNTS]
            where = np.flatnonzero(counts != 0)  # of booleans: four times as fast
            self._filled = where, counts[where]
        return self._filled

    def fill(self, where: NDArray[np.int64], counts: NDArray[np.int64]) -> None:
        """Give the counts, all of them zero until now, what they are where they are not; `where` ascends."""
        self.sections[COUNTS][where] = counts
        self._filled = where, counts

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
        span = self.scheme.spans[name]
        return self.sections[span.section][span.start : span.stop].reshape(span.shape)

    def get(self, name: str) -> Array | None:
        """A row, None where it is not there or was not counted by all."""
        return self[name] if name in self.scheme.spans and name not in self.absent else None

    def at(self, name: str) -> Sparse:
        """A row of no fixed length: where it is not zero, and what it is there."""
        return self.sparse.get(name, NOWHERE)

    def __contains__(self, path: object) -> bool:
        """Whether there is a table at a path."""
        return path in self.scheme.paths

    def under(self, prefix: str) -> Iterable[str]:
        """The paths of tables that begin with the parts of `prefix`."""
        return self.scheme.under(prefix)

    def record(self, path: str) -> dict[str, float]:
        """The single numbers of the tables at a path by the names of their rows; {} where there are none."""
        found: dict[str, float] = {}
        for table in self.scheme.paths.get(path, ()):
            begins = self.scheme.starts[table.key]
            for row, name, span in self.scheme.block(table.key).rows.values():
                if span is not None and not span.shape and name not in self.absent:
                    found[row] = self.sections[span.section].item(begins[span.section] + span.start)
        return found

    def columns(self, path: str) -> dict[str, Array]:
        """The rows of the tables at a path by their names."""
        return {row.name: self[name_of(path, row.name)] for table in self.scheme.paths[path] for row in table.rows}

    def without(self, keys: Iterable[str]) -> "Arrays":
        """The same but for some tables."""
        left = set(keys)
        if not left & set(self.scheme.keys):
            return self
        kept = scheme_of(self.scheme.layout, tuple(key for key in self.scheme.keys if key not in left))
        arrays = Arrays(
            kept, None, {name: self.sparse[name] for name in kept.sparse if name in self.sparse}, self.absent
        )
        for name in kept.spans:
            arrays[name][...] = self[name]
        return arrays

    def lacking(self, absent: Iterable[str]) -> "Arrays":
        """The same where these rows, or tables by the key of their declaration, were not counted."""
        lost = self.absent | frozenset(absent)
        if not lost:
            return self
        gone = [key for key, table in self.scheme.tables.items() if table.declared in lost]
        left = self.without(gone)
        return Arrays(left.scheme, left.buffer, left.sparse, lost)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Arrays) or self.scheme.spans.keys() != other.scheme.spans.keys():
            return False
        if set(self.scheme.keys) != set(other.scheme.keys) or self.absent != other.absent:
            return False
        sparse = self.sparse.keys() | other.sparse.keys()
        return all(np.array_equal(self[name], other[name]) for name in self.scheme.spans) and all(
            np.array_equal(a, b) for name in sparse for a, b in zip(self.at(name), other.at(name), strict=True)
        )

    __hash__ = None  # type: ignore[assignment]


def merged(parts: Sequence[Arrays]) -> Arrays:
    """The arrays of all taken together, added from left to right; one alone is itself."""
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return Arrays()
    scheme, (first, *others) = union(tuple(part.scheme for part in parts)), parts
    if scheme is first.scheme:
        whole = Arrays(scheme, first.buffer.copy(), first.sparse)
    else:
        whole = Arrays(scheme)
        _add(whole, first)
    for part in others:
        _add(whole, part)
    return whole.lacking(frozenset().union(*(part.absent for part in parts)))


def filled(counts: Array) -> dict[int, float]:
    """The entries of an array that are not zero, by their index."""
    flat = counts.reshape(-1)
    indices = np.flatnonzero(flat != 0)
    return dict(zip(indices.tolist(), flat[indices].tolist(), strict=True))


def _add(whole: Arrays, part: Arrays) -> None:
    """Add what a part counts, whose rows the whole has."""
    apart = _between_means(whole, part)
    for section, found in zip(SECTIONS, runs(part.scheme, whole.scheme), strict=True):
        mine, theirs = whole.sections[section], part.sections[section]
        if section == COUNTS and len(part.filled[0]) < FEW * len(theirs):
            _add_few(mine, part.filled, found)
            continue
        for start, stop, into in found:
            here = mine[into : into + stop - start]
            _MERGE[section](here, theirs[start:stop], out=here)
    for index, between in apart:
        whole.sections[SUMS][index] += between
    for name, found_there in part.sparse.items():
        whole.sparse[name] = _together(whole.at(name), found_there)


def _add_few(mine: Array, filled: Sparse, found: Sequence[Run]) -> None:
    """Add counts of which few are not zero."""
    where, counts = filled
    cuts = np.searchsorted(where, [run.start for run in found]).tolist()
    for run, (begin, end) in zip(found, pairwise([*cuts, len(where)]), strict=True):
        mine[where[begin:end] + (run.into - run.start)] += counts[begin:end]


_MERGE: Final = (np.add, np.add, np.minimum, np.maximum)


def _between_means(whole: Arrays, part: Arrays) -> list[tuple[int, float]]:
    """By its index, what each deviation gains because two means differ: Chan, Golub and LeVeque (1979)."""
    found = []
    for name, theirs in part.scheme.deviations.items():
        mine = whole.scheme.deviations[name]
        n, m = whole.sections[COUNTS].item(mine.tokens), part.sections[COUNTS].item(theirs.tokens)
        if n and m:
            apart = whole.sections[SUMS].item(mine.total) / n - part.sections[SUMS].item(theirs.total) / m
            found.append((mine.entry, apart * apart * (n * m / (n + m))))
    return found


def _together(left: Sparse, right: Sparse) -> Sparse:
    """Both added up."""
    numbers, indices = np.unique(np.concatenate([left[0], right[0]]), return_inverse=True)
    counts = np.zeros(len(numbers), np.int64)
    np.add.at(counts, indices, np.concatenate([left[1], right[1]]))
    return numbers, counts


def _sections(scheme: Scheme, buffer: NDArray[np.int64]) -> list[Array]:
    """The sections of a buffer, as they are typed."""
    counts, sums, minima, _ = scheme.sizes
    fractions = buffer[counts:].view(np.float64)
    return [buffer[:counts], fractions[:sums], fractions[sums : sums + minima], fractions[sums + minima :]]
