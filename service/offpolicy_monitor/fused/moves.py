"""Moves: numbers from where the pass leaves them to where a summary keeps them, in one call."""

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from offpolicy_monitor.fused.arrays import Integers
from offpolicy_monitor.fused.token import PASS
from offpolicy_monitor.summary.arrays import Arrays
from offpolicy_monitor.summary.scheme import COUNTS

#: Counts that are looked at together: nearly all are zero.
_STRIDE = 64


class Moves(NamedTuple):
    """Rows of (from, to, how many)."""

    counts: Integers  # of counts to whole numbers
    whole: Integers  # of numbers to whole numbers
    numbers: Integers  # of numbers to numbers
    rest: Integers  # of counts to nowhere: what no table has


def moves_of(where: Arrays, first: int, numbers: int, counts: int) -> Moves:
    """The moves to where `where` has a slot: from `first` on come the slots of all numbers, and then of all counts.

    ValueError for a count that is in two tables: it is gone once it is moved.
    """
    whole = where.sections[COUNTS]
    slots = np.concatenate(where.fractions).astype(np.int64)
    of_counts = _rows(whole, first + numbers, counts)
    left = np.ones(counts, np.int64)
    for begin, _, length in of_counts.tolist():
        left[begin : begin + length] -= 1
    if left.min(initial=0) < 0:
        raise ValueError("a count is in two tables")
    nowhere = _rows(np.where(left, np.arange(counts) + 1, 0), 1, counts)
    return Moves(of_counts, _rows(whole, first, numbers), _rows(slots, first, numbers), nowhere)


def _rows(slots: Any, first: int, number: int) -> Integers:
    """Rows of (from, to, how many) of what stands at slots `first` to `first` + `number`: neighbours together."""
    into = np.flatnonzero((slots >= first) & (slots < first + number))
    begins = slots[into] - first
    new = np.flatnonzero((np.diff(into, prepend=-2) != 1) | (np.diff(begins, prepend=-2) != 1))
    lengths = np.diff(new, append=len(into))
    return np.ascontiguousarray(np.stack([begins[new], into[new], lengths], 1), np.int64)


@njit(**PASS)
def move(moves: Any, numbers: Any, counts: Any, fractions: Any, where: Any, found: Any) -> Any:
    """Copy numbers to a summary's fractions, and leave zeros -> how many of its whole numbers are not zero, of which
    `where` and `found` say in any order where they stand and what they are."""
    number = 0
    for k in range(len(moves.counts)):
        begin, into, length = moves.counts[k]
        number = _take(counts[begin : begin + length], into, where, found, number)
    for k in range(len(moves.whole)):
        begin, into, length = moves.whole[k]
        for i in range(length):
            value = np.int64(numbers[begin + i])
            if value:
                where[number], found[number] = into + i, value
                number += 1
    for k in range(len(moves.numbers)):
        begin, into, length = moves.numbers[k]
        for i in range(length):
            fractions[into + i] = numbers[begin + i]
    numbers[:] = 0.0
    for k in range(len(moves.rest)):
        begin, _, length = moves.rest[k]
        counts[begin : begin + length] = 0
    return number


@njit(**PASS)
def _take(counts: Any, into: Any, where: Any, found: Any, number: Any) -> Any:
    """Tell the counts that are not zero, from `number` on, and leave zeros.

    Unsigned indices: with signed ones, or with a slice for each strip, this takes three times as long.
    """
    length = np.uint64(len(counts))
    for begin in range(np.uint64(0), length, np.uint64(_STRIDE)):
        end = min(begin + np.uint64(_STRIDE), length)
        some = np.int32(0)
        for k in range(begin, end):
            some |= counts[k]
        if some:
            for k in range(begin, end):
                if counts[k]:
                    where[number], found[number] = into + np.int64(k), counts[k]
                    number += 1
                    counts[k] = 0
    return number
