"""The worst sequences of a batch and what is kept of their tokens, as measure.worst defines it, in one call.

Shapes as there: S sequences, C of them chosen, K of these with raw tokens; G gaps, P positions.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numba import njit

from offpolicy_monitor.batch import RaggedBatch
from offpolicy_monitor.fused.arrays import Doubles, Floats, Integers, fitting
from offpolicy_monitor.fused.batch import is_short
from offpolicy_monitor.fused.bits import MAGNITUDE_BITS, pattern
from offpolicy_monitor.fused.token import INNER, PASS, SHORT, STRICT, WITHIN
from offpolicy_monitor.summary.tables.worst import GAPS, LARGEST, MOST, MOST_TOKENS, Positions, Ranked, Tokens

#: Tokens that are looked at one by one where the largest of them may be the largest of all.
_STRIP = 64
_NONE: Final = np.zeros(0, np.int64)
#: Marks of a sequence that is chosen, and of one that keeps its raw tokens too.
_CHOSEN, _KEPT = 1, 2


def worst(
    source: RaggedBatch, columns: tuple[Floats, Floats, Floats], gaps: Sequence[str], ranking: Doubles, keep: int
) -> tuple[Ranked, Tokens]:
    """The first of each ranking of a batch with these log-probs [T], or empty, by `ranking` [4, 3, S] of
    totals.finish."""
    starts, positions = _NONE, _NONE
    if source.positions is not None:
        starts, positions = np.cumsum(source.lengths) - source.lengths, source.positions
    whole = (fitting(array, np.int64) for array in (source.offsets, starts, positions))
    look = find_short if is_short(source) else find
    ranked, furthest, raw, spans = look(columns, _of(tuple(gaps)), *whole, ranking, keep)
    return Ranked(*ranked), Tokens(Positions(*furthest), Positions(*raw), spans)


@lru_cache(8)
def _of(gaps: tuple[str, ...]) -> Integers:
    """[G, 3]: the number of each, and the columns of its numerator and its denominator."""
    return np.array([(list(GAPS).index(gap), *GAPS[gap]) for gap in gaps], np.int64).reshape(-1, 3)


@njit(**PASS)
def find(
    columns: Any, gaps: Any, offsets: Any, starts: Any, positions: Any, ranking: Any, keep: Any
) -> Any:  # fmt: skip
    """The fields of Ranked; numbers, positions and log-probs [P, 3] of the furthest tokens and of the raw ones; the
    spans of these.

    columns [T] float32 each, empty for one that was not sent; starts [S] and positions [T] are empty where every
    position is a token.
    """
    marks = np.zeros(ranking.shape[2], np.uint8)
    _mark(ranking, gaps, keep, np.empty(MOST, np.float32), np.empty(MOST, np.int64), marks)
    sequences, kept = np.flatnonzero(marks), np.flatnonzero(marks[marks > 0] == _KEPT)
    figures = np.full((len(sequences), 3, 3), np.nan)
    _tell(ranking, gaps, sequences, figures)
    sizes = np.empty(len(sequences), np.int64)
    for c in range(len(sequences)):
        sizes[c] = offsets[sequences[c] + 1] - offsets[sequences[c]]
    furthest, raw, spans = _tokens(columns, gaps, offsets, starts, positions, ranking[1], sequences, kept)
    return (sequences, sizes, figures, kept), furthest, raw, spans


@njit(**SHORT)
def find_short(
    columns: Any, gaps: Any, offsets: Any, starts: Any, positions: Any, ranking: Any, keep: Any
) -> Any:  # fmt: skip
    """`find` in a short batch."""
    return find(columns, gaps, offsets, starts, positions, ranking, keep)


@njit(**INNER)
def _mark(ranking: Any, gaps: Any, keep: Any, best: Any, first: Any, marks: Any) -> None:
    """Mark the sequences with the largest magnitudes of a figure and gap, of equal ones the first."""
    for figure in range(1, ranking.shape[0]):
        for k in range(len(gaps)):
            number = 0
            for s in range(ranking.shape[2]):
                value = abs(_single(ranking[figure, gaps[k, 0], s]))
                if not value > 0 or (number == MOST and not value > best[MOST - 1]):
                    continue
                i = min(number, MOST - 1)
                while i > 0 and best[i - 1] < value:
                    best[i], first[i] = best[i - 1], first[i - 1]
                    i -= 1
                best[i], first[i] = value, s
                number = min(number + 1, MOST)
            for i in range(number):
                marks[first[i]] = max(marks[first[i]], np.uint8(_KEPT if i < keep else _CHOSEN))


@njit(**INNER)
def _tell(ranking: Any, gaps: Any, sequences: Any, figures: Any) -> None:
    """The figures of the chosen where they have a token: tokens, mean d, the sum of k3."""
    for c in range(len(sequences)):
        for k in range(len(gaps)):
            gap, s = gaps[k, 0], sequences[c]
            if ranking[0, gap, s] > 0:
                figures[c, gap, 0] = ranking[0, gap, s]
                figures[c, gap, 1] = _single(ranking[2, gap, s])
                figures[c, gap, 2] = _single(ranking[3, gap, s])


@njit(**INNER)
def _single(value: Any) -> Any:
    return np.float32(min(max(value, -LARGEST), LARGEST))


@njit(**WITHIN)
def _tokens(
    columns: Any, gaps: Any, offsets: Any, starts: Any, positions: Any, most: Any, sequences: Any, kept: Any
) -> Any:  # fmt: skip
    """What is kept of the tokens of some sequences; most [3, S]: max |d| of each."""
    numbers, ends = np.zeros(len(sequences), np.int64), np.zeros(len(sequences) + 1, np.int64)
    tokens = np.empty(len(sequences) * len(gaps), np.int64)
    for k in range(len(sequences)):
        last = ends[k]
        for gap in range(len(gaps)):
            a, b = columns[gaps[gap, 1]], columns[gaps[gap, 2]]
            largest = _single(most[gaps[gap, 0], sequences[k]])
            token = _furthest(a, b, offsets[sequences[k]], offsets[sequences[k] + 1], largest)
            if token >= 0:
                last = _enter(tokens, ends[k], last, token)
        numbers[k], ends[k + 1] = last - ends[k], last
    furthest = np.empty(ends[-1], np.int64), np.empty((ends[-1], 3), np.float32)
    for k in range(len(sequences)):
        for i in range(ends[k], ends[k + 1]):
            _copy(columns, offsets, starts, positions, sequences[k], tokens[i], tokens[i] + 1, *furthest, i)
    spans, sizes = np.empty((len(kept), 2), np.int64), np.empty(len(kept), np.int64)
    for k in range(len(kept)):
        first, end = offsets[sequences[kept[k]]], offsets[sequences[kept[k]] + 1]
        middle = tokens[ends[kept[k]]] if numbers[kept[k]] else first
        begin = max(min(middle - MOST_TOKENS // 2, end - MOST_TOKENS), first)
        spans[k, 0], spans[k, 1] = begin, min(begin + MOST_TOKENS, end)
        sizes[k] = spans[k, 1] - spans[k, 0]
    raw = np.empty(sizes.sum(), np.int64), np.empty((sizes.sum(), 3), np.float32)
    into = 0
    for k in range(len(kept)):
        _copy(columns, offsets, starts, positions, sequences[kept[k]], spans[k, 0], spans[k, 1], *raw, into)
        into += sizes[k]
    return (numbers, *furthest), (sizes, *raw), spans


@njit(**INNER)
def _enter(tokens: Any, first: Any, last: Any, token: Any) -> Any:
    """Put a token among those from `first` to `last`, which ascend, unless it is there -> where they end then."""
    i = last
    while i > first and tokens[i - 1] > token:
        i -= 1
    if i > first and tokens[i - 1] == token:
        return last
    for k in range(last, i, -1):
        tokens[k] = tokens[k - 1]
    tokens[i] = token
    return last + 1


@njit(**INNER)
def _copy(
    columns: Any, offsets: Any, starts: Any, positions: Any, sequence: Any, begin: Any, end: Any, at: Any,
    logprobs: Any, into: Any,
) -> None:  # fmt: skip
    """Copy the tokens of a sequence from `begin` to `end`: their positions in it, and their log-probs."""
    for t in range(begin, end):
        at[into + t - begin] = positions[t] - starts[sequence] if len(positions) else t - offsets[sequence]
    for c in range(3):
        column = columns[c]
        for t in range(begin, end):
            value = column[t] if len(column) else np.float32(np.nan)
            logprobs[into + t - begin, c] = value if abs(value) < np.inf else np.float32(np.nan)


@njit(**INNER)
def _furthest(a: Any, b: Any, begin: Any, end: Any, largest: Any) -> Any:
    """The first token with the largest |d|, -1 for none: what is not finite counts for nothing. `largest` is that |d|
    as a float32, which the |d| of others may round to as well."""
    token: Any = -1
    most = 0.0
    least = max(np.int32(1), pattern(largest))
    for strip in range(begin, end, _STRIP):
        stop = min(strip + _STRIP, end)
        if _largest(a[strip:stop], b[strip:stop]) < least:
            continue
        for t in range(strip, stop):
            apart = abs(np.float64(a[t]) - np.float64(b[t]))
            if most < apart < np.inf:
                token, most = t, apart
    return token


@njit(**STRICT)
def _largest(a: Any, b: Any) -> Any:
    """The bits of the largest |d|, which compare as it does; what is not finite is larger than all."""
    most = np.int32(0)
    for i in range(len(a)):
        bits = pattern(a[i] - b[i]) & MAGNITUDE_BITS
        most = bits if bits > most else most
    return most
