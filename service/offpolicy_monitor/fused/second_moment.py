"""M2PO's cut: the tokens of the largest d^2 go until the mean d^2 of the rest is small enough. Source: M2PO.

Sums of d^2 by bin of |d| tell in which bin the cut falls, and the tokens of that bin are sorted. Shapes: T tokens of a
gap.
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
def cut(scores: Any, threshold: Any, outward: Any) -> Any:
    """(value, dropped): tokens with a score above the value go, and of those equal to it the first `dropped`.

    Kept are as many of the smallest as have a mean square of at most the threshold; with `outward` those above 0 alone
    are looked at. Scores are |d| of float32, or 0.
    """
    numbers, sums = np.zeros(_BINS, np.int64), np.zeros(_BINS)
    for x in scores:
        if x > 0.0 or not outward:
            index = pattern(np.float32(x)) >> _SHIFT
            numbers[index] += 1
            sums[index] += x * x
    kept, total, index = 0, 0.0, 0
    while index < _BINS and total + sums[index] <= threshold * (kept + numbers[index]):
        kept += numbers[index]
        total += sums[index]
        index += 1
    if index == _BINS:
        return np.inf, 0
    found = np.empty(numbers[index])
    k = 0
    for x in scores:
        if (x > 0.0 or not outward) and pattern(np.float32(x)) >> _SHIFT == index:
            found[k] = x
            k += 1
    found.sort()
    k = 0
    while k < len(found) and total + found[k] * found[k] <= threshold * (kept + k + 1):
        total += found[k] * found[k]
        k += 1
    value = found[min(k, len(found) - 1)]
    return value, np.searchsorted(found, value, side="right") - k


@njit(**WITHIN)
def drop(
    a: Any, b: Any, offsets: Any, advantages: Any, per_token: Any, scores: Any, value: Any, ties: Any, dropped: Any,
    kept: Any,
) -> Any:  # fmt: skip
    """[RULE_SUMS] of dropping what scores above a value, and the first `ties` of those equal to it; dropped [S] is how
    many tokens of each sequence; kept [T], or [0]."""
    out = np.zeros(RULE_SUMS)
    for s in range(len(offsets) - 1):
        number = 0
        for t in range(offsets[s], offsets[s + 1]):
            d = a[t] - b[t]
            square = np.float64(d) * np.float64(d)
            off = scores[t] > value
            if scores[t] == value and ties > 0:
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
