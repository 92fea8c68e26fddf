"""M2PO's cut: the tokens of the largest d^2 go until the mean d^2 of the rest is small enough. Source: M2PO.

The pass has counted everything already; only where the mean of all tokens is too large are they looked at again: sums
of d^2 by bin of |d| tell in which bin the cut falls, and the tokens of that bin are sorted. Shapes: T tokens of a gap.
"""

from typing import Any

import numpy as np
from numba import njit

from offpolicy_monitor.fused.arrays import (
    K3_DROPPED,
    LOW,
    MASS_DROPPED,
    RULE_SUMS,
    SQUARE_DROPPED,
)
from offpolicy_monitor.fused.bits import pattern
from offpolicy_monitor.fused.token import WITHIN, far

#: Bins of |d| by the top bits of its pattern: 64 parts of each power of two.
_SHIFT = 17
_BINS = 1 << (31 - _SHIFT)


@njit(**WITHIN)
def cut(a: Any, b: Any, threshold: Any) -> Any:
    """(value, dropped): tokens with d^2 above the value go, and of those equal to it the first `dropped`.

    Kept are as many of the smallest as have a mean of at most the threshold.
    """
    numbers, sums = np.zeros(_BINS, np.int64), np.zeros(_BINS)
    for i in range(len(a)):
        d = a[i] - b[i]
        index = pattern(abs(d)) >> _SHIFT
        numbers[index] += 1
        sums[index] += np.float64(d) * np.float64(d)
    kept, total, index = 0, 0.0, 0
    while index < _BINS and total + sums[index] <= threshold * (kept + numbers[index]):
        kept += numbers[index]
        total += sums[index]
        index += 1
    if index == _BINS:
        return np.inf, 0
    squares = np.empty(numbers[index])
    k = 0
    for i in range(len(a)):
        d = a[i] - b[i]
        if pattern(abs(d)) >> _SHIFT == index:
            squares[k] = np.float64(d) * np.float64(d)
            k += 1
    squares.sort()
    k = 0
    while k < len(squares) and total + squares[k] <= threshold * (kept + k + 1):
        total += squares[k]
        k += 1
    value = squares[min(k, len(squares) - 1)]
    return value, np.searchsorted(squares, value, side="right") - k


@njit(**WITHIN)
def drop(
    a: Any, b: Any, offsets: Any, advantages: Any, per_token: Any, value: Any, ties: Any, dropped: Any, kept: Any
) -> Any:
    """[RULE_SUMS] of dropping what `cut` says; dropped [S] is how many tokens of each sequence; kept [T], or [0]."""
    out = np.zeros(RULE_SUMS)
    for s in range(len(offsets) - 1):
        number = 0
        for t in range(offsets[s], offsets[s + 1]):
            d = a[t] - b[t]
            square = np.float64(d) * np.float64(d)
            off = square > value
            if square == value and ties > 0:
                off = True
                ties -= 1
            side = 0 if off else 1
            number += off
            out[K3_DROPPED + side] += np.float64(far(d)[3])
            out[SQUARE_DROPPED + side] += square
            if off and len(advantages):
                out[MASS_DROPPED] += abs(np.float64(advantages[t] if per_token else advantages[s]))
            if off and len(kept):
                kept[t] = 0
        dropped[s] = number
        out[LOW] += number
    return out
