"""Glance: what rows say of each other, compared for all of them by a few operations on arrays.

Most summaries hold what they should. So what a glance finds is looked at one by one, by whoever knows its name and what
is to be said of it; what it does not find holds. Made once for tables that many shards have. Knows where entries stand,
and no row by name.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from typing import Final, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from offpolicy_monitor.summary.arrays import Array, Arrays
from offpolicy_monitor.summary.faults import ROUNDING, UNDERFLOW, fits_mean, fits_squares
from offpolicy_monitor.summary.scheme import COUNTS, MAXIMA, SUMS, Span

#: What is looked at one by one.
Looked = TypeVar("Looked")
#: Relations of one kind: of each what is looked at, and where its entries stand.
Columns = NDArray[np.int64]
#: A row of so many entries is compared where it is not zero alone.
MANY: Final = 8


class Glance(Generic[Looked]):
    """Relations between entries, each of something that is looked at where it may not hold."""

    def __init__(self) -> None:
        self._looked: list[Looked] = []
        self._always: list[int] = []
        self._sums: list[tuple[int, ...]] = []
        self._each: list[tuple[int, ...]] = []
        self._fractions: list[tuple[int, ...]] = []
        self._means: list[tuple[int, ...]] = []
        self._squares: list[tuple[int, ...]] = []
        self._positive: list[tuple[int, ...]] = []
        self._nothing: list[tuple[int, ...]] = []

    def always(self, looked: Looked) -> None:
        """This is looked at whatever the numbers are."""
        self._always.append(self._number(looked))

    def sum_of(self, looked: Looked, part: Span, whole: Span, equal: bool = False) -> None:
        """The entries of some counts are together no more than a count; or as many."""
        if part.section != COUNTS or whole.section != COUNTS:
            self.always(looked)
            return
        self._sums.append((self._number(looked), equal, part.start, part.stop, whole.start, whole.start + 1))

    def each_of(self, looked: Looked, part: Span, whole: Span) -> None:
        """Each entry is no more than the one at its index; of fractions about no more, of sums their magnitudes."""
        number, counts = self._number(looked), part.section == whole.section == COUNTS
        if counts and part.stop - part.start >= MANY:
            self._each.append((number, whole.start - part.start, part.start, part.stop))
            return
        for entry, most in zip(range(part.start, part.stop), range(whole.start, whole.stop), strict=True):
            if counts:
                self._sums.append((number, False, entry, entry + 1, most, most + 1))
            else:
                self._fractions.append((number, part.section, whole.section, entry, most))

    def mean(self, looked: Looked, count: Span, total: Span, extreme: Span) -> None:
        """The mean of each total over its count is within an extreme; all three have as many entries."""
        self._means.extend(self._side_by_side(looked, count, total, extreme))

    def squares(self, looked: Looked, count: Span, product: Span, first: Span, second: Span) -> None:
        """Each entry is a sum of so many products of numbers whose squares add up to these at its index."""
        self._squares.extend(self._side_by_side(looked, count, product, first, second))

    def positive(self, looked: Looked, entry: Span) -> None:
        """A count is more than 0."""
        self._positive.append((self._number(looked), entry.start))

    def nothing_without(self, looked: Looked, counts: Span, sums: Span) -> None:
        """Where a count is 0 the sum at its index is."""
        number = self._number(looked)
        entries = zip(range(counts.start, counts.stop), range(sums.start, sums.stop), strict=True)
        self._nothing.extend((number, count, entry) for count, entry in entries)

    def doubtful(self, arrays: Arrays) -> Sequence[Looked]:
        """What is not found to hold, in the order in which it was said."""
        found = {*self._always}.union(*(wrong(arrays) for wrong in self._wrong))
        return [self._looked[number] for number in sorted(found)]

    def _side_by_side(self, looked: Looked, *spans: Span) -> Iterator[tuple[int, ...]]:
        """The number of what is looked at, the sections, and where the entries at each index stand."""
        number, sections = self._number(looked), [span.section for span in spans]
        for entries in zip(*(range(span.start, span.stop) for span in spans), strict=True):
            yield number, *sections, *entries

    def _number(self, looked: Looked) -> int:
        self._looked.append(looked)
        return len(self._looked) - 1

    @cached_property
    def _wrong(self) -> Sequence[Callable[[Arrays], Sequence[int]]]:
        """What finds the relations of each kind that do not hold; their numbers stand side by side."""
        kinds = (
            (_wrong_sums, self._sums),
            (_wrong_each, self._each),
            (_wrong_fractions, self._fractions),
            (_wrong_means, self._means),
            (_wrong_squares, self._squares),
            (_wrong_counts, self._positive),
            (_wrong_zeros, self._nothing),
        )
        return [partial(wrong, np.array(kind, np.int64).T.copy()) for wrong, kind in kinds if kind]


def _wrong_sums(columns: Columns, arrays: Arrays) -> Sequence[int]:
    numbers, equal, *_ = columns
    where, counts = arrays.filled
    before = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=before[1:])
    start, stop, of, after = before[where.searchsorted(columns[2:])]
    parts, wholes = stop - start, after - of
    return _of((parts > wholes) | ((equal == 1) & (parts != wholes)), numbers)


def _wrong_each(columns: Columns, arrays: Arrays) -> Sequence[int]:
    numbers, apart, *_ = columns
    where, counts = arrays.filled
    starts, stops = where.searchsorted(columns[2:])
    of = np.repeat(np.arange(len(numbers)), stops - starts)
    chosen = np.arange(len(of)) + (stops - np.cumsum(stops - starts))[of]
    return _of(counts[chosen] > arrays.counts_at(where[chosen] + apart[of]), numbers[of])


def _wrong_fractions(columns: Columns, arrays: Arrays) -> Sequence[int]:
    numbers, *_ = columns
    low, high = _side_by_side(columns, arrays)
    low = np.where(columns[1] == SUMS, np.abs(low), low)
    with np.errstate(invalid="ignore"):  # of two that are infinite, which are looked at
        fits = low <= high + ROUNDING * np.maximum(np.abs(low), np.abs(high)) + UNDERFLOW
    return _of(~fits, numbers)


def _wrong_means(columns: Columns, arrays: Arrays) -> Sequence[int]:
    numbers, _, _, sections, *_ = columns
    return _of(~fits_mean(*_side_by_side(columns, arrays), largest=sections == MAXIMA), numbers)


def _wrong_squares(columns: Columns, arrays: Arrays) -> Sequence[int]:
    numbers, *_ = columns
    return _of(~fits_squares(*_side_by_side(columns, arrays)), numbers)


def _wrong_counts(columns: Columns, arrays: Arrays) -> Sequence[int]:
    numbers, entries = columns
    return _of(arrays.counts_at(entries) <= 0, numbers)


def _wrong_zeros(columns: Columns, arrays: Arrays) -> Sequence[int]:
    numbers, counts, sums = columns
    filled = np.flatnonzero(arrays.section(SUMS)[sums])
    return _of(arrays.counts_at(counts[filled]) == 0, numbers[filled])


def _of(wrong: Array, numbers: Array) -> Sequence[int]:
    found: list[int] = numbers[wrong].tolist() if wrong.any() else []
    return found


def _side_by_side(columns: Columns, arrays: Arrays) -> Sequence[NDArray[np.float64]]:
    """What stands in the columns of relations of one kind, by their sections and entries."""
    sections, entries = columns[1:].reshape(2, -1, columns.shape[1])
    return [_values(arrays, *of) for of in zip(sections, entries, strict=True)]


def _values(arrays: Arrays, sections: Array, entries: Array) -> NDArray[np.float64]:
    """What stands at some entries of sections; counts are small enough to be fractions too."""
    found, counts = np.empty(len(entries)), sections == COUNTS
    found[counts] = arrays.counts_at(entries[counts])
    begins = np.array(arrays.scheme.begins)
    found[~counts] = arrays.fractions_at((entries + begins[sections])[~counts])
    return found
