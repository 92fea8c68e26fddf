"""Moves: numbers from where the pass leaves them to where a summary keeps them, in one call."""

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from offpolicy_monitor.fused.arrays import Integers, Singles
from offpolicy_monitor.fused.bits import STRIDE, filled, lowest
from offpolicy_monitor.fused.token import INNER, SHORT_ENTRY
from offpolicy_monitor.summary.arrays import Arrays
from offpolicy_monitor.summary.scheme import COUNTS

#: Where a summary's whole numbers come from: counts and numbers of the part, numbers of the whole batch.
_COUNTED, _NUMBERED, _WHOLE = range(3)
#: What moves have, column by column.
_FROM, _TO, _HOW_MANY, _NEEDS, _KIND = range(5)


class Moves(NamedTuple):
    """Columns of (from, to, how many, needs), and of `counts` also from which of _COUNTED, _NUMBERED and _WHOLE; these
    go to whole numbers, and where they go ascends. Counts are zero unless all bits of `needs` were seen
    (results.needs). Few bytes, and those of each kind together: there are some thousand moves, most of them of nothing.
    """

    counts: Singles
    numbers: Singles  # of numbers to fractions
    whole: Singles  # of numbers of the whole batch to fractions
    rest: Singles  # of counts to nowhere: what no table has


def moves_of(where: Arrays, first: int, numbers: int, needs: Integers, whole: tuple[int, int] = (0, 0)) -> Moves:
    """The moves to where `where` has a slot: from `first` on come the slots of all numbers, and then of all counts,
    each with what it needs; (first, how many) those of the whole batch.

    ValueError for a count that is in two tables: it is gone once it is moved.
    """
    slots, fractions = where.sections[COUNTS], np.concatenate(where.fractions).astype(np.int64)
    of_counts, none = _rows(slots, first + numbers, len(needs), needs), np.zeros(max(numbers, whole[1]), np.int64)
    left = np.ones(len(needs), np.int64)
    for begin, _, length, _ in of_counts.T.tolist():
        left[begin : begin + length] -= 1
    if left.min(initial=0) < 0:
        raise ValueError("a count is in two tables")
    nowhere = _rows(np.where(left, np.arange(len(needs)) + 1, 0), 1, len(needs), needs)
    of_numbers, of_batch = _rows(slots, first, numbers, none), _rows(slots, *whole, none)
    kinds = np.repeat((_COUNTED, _NUMBERED, _WHOLE), [len(moved.T) for moved in (of_counts, of_numbers, of_batch)])
    moved = np.vstack([np.hstack([of_counts, of_numbers, of_batch]), kinds]).astype(np.int32)
    return Moves(
        np.ascontiguousarray(moved[:, np.argsort(moved[1])]), _rows(fractions, first, numbers, none),
        _rows(fractions, *whole, none), nowhere,
    )  # fmt: skip


def _rows(slots: Any, first: int, number: int, needs: Integers) -> Singles:
    """Columns of (from, to, how many, needs) of what stands at slots `first` to `first` + `number`: neighbours together
    that need the same."""
    into = np.flatnonzero((slots >= first) & (slots < first + number))
    begins = slots[into] - first
    apart = (np.diff(into, prepend=-2) != 1) | (np.diff(begins, prepend=-2) != 1)
    new = np.flatnonzero(apart | (np.diff(needs[begins], prepend=-1) != 0))
    lengths = np.diff(new, append=len(into))
    return np.array([begins[new], into[new], lengths, needs[begins[new]]], np.int32)


@njit(**INNER | SHORT_ENTRY)
def move(
    moves: Any, numbers: Any, counts: Any, whole: Any, seen: Any, fractions: Any, where: Any, found: Any
) -> Any:  # fmt: skip
    """Copy numbers of a part, which saw `seen`, and of the whole batch to a summary's fractions, and leave zeros of
    the part's -> how many of its whole numbers are not zero, of which `where`, ascending, and `found` say where they
    stand and what they are."""
    number = np.int64(0)  # no literal, as in tokens.py
    moved, rest = moves.counts, moves.rest
    for k in range(moved.shape[1]):
        if moved[_NEEDS, k] & ~seen:
            continue
        begin, into = np.int64(moved[_FROM, k]), np.int64(moved[_TO, k])
        length, kind = np.int64(moved[_HOW_MANY, k]), moved[_KIND, k]
        if kind == _COUNTED:
            number = _take(counts, begin, into, length, where, found, number)
        elif kind == _NUMBERED:
            number = _whole(numbers, begin, into, length, where, found, number)
        else:
            number = _whole(whole, begin, into, length, where, found, number)
    _copy(moves.numbers, numbers, fractions)
    _copy(moves.whole, whole, fractions)
    numbers[:] = 0.0
    for k in range(rest.shape[1]):
        if not rest[_NEEDS, k] & ~seen:
            counts[rest[_FROM, k] : rest[_FROM, k] + rest[_HOW_MANY, k]] = 0
    return number


@njit(**INNER)
def _copy(moved: Any, numbers: Any, fractions: Any) -> None:
    for k in range(moved.shape[1]):
        begin, into = moved[_FROM, k], moved[_TO, k]
        for i in range(moved[_HOW_MANY, k]):
            fractions[into + i] = numbers[begin + i]


@njit(**INNER)
def _whole(numbers: Any, begin: Any, into: Any, length: Any, where: Any, found: Any, number: Any) -> Any:
    """Tell the whole numbers among fractions that are not zero, from `number` on."""
    for i in range(length):
        value = np.int64(numbers[begin + i])
        if value:
            where[number], found[number] = into + i, value
            number += 1
    return number


@njit(**INNER)
def _take(counts: Any, begin: Any, into: Any, length: Any, where: Any, found: Any, number: Any) -> Any:
    """Tell the counts that are not zero of some neighbours, from `number` on, and leave zeros."""
    for start in range(begin, begin + length, STRIDE):
        left = filled(counts, start, begin + length)
        while left:
            k = start + lowest(left)
            where[number], found[number] = into + k - begin, counts[k]
            counts[k] = 0
            number += 1
            left &= left - 1
    return number
