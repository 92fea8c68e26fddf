"""Stages of the rules on tokens. Shapes: n <= BLOCK tokens, each column [n].

A rule drops a token below `low` where A is at most `low_sign`, and above `high` where A is at least `high_sign`; bounds
that are not there, and signs that do not matter, are infinite.
"""

from typing import Any

import numpy as np
from numba import njit

from offpolicy_monitor.fused.arrays import (
    CUT,
    HIGH,
    K3_DROPPED,
    K3_KEPT,
    LOW,
    SQUARE_DROPPED,
    SQUARE_KEPT,
    W_EXCESS,
    W_EXCESS_SQUARE,
    W_MAX,
    W_SQUARE,
    W,
)
from offpolicy_monitor.fused.bits import greater, lesser
from offpolicy_monitor.fused.sums import FAST
from offpolicy_monitor.fused.token import ONE, ZERO


@njit(**FAST)
def dropped(
    score: Any, k3: Any, d: Any, advantages: Any, low: Any, high: Any, low_sign: Any, high_sign: Any, out: Any
) -> Any:
    """Add up what the rule drops and keeps; how many it drops."""
    lows, highs, k3_off, k3_on, square_off, square_on = ZERO, ZERO, ZERO, ZERO, ZERO, ZERO
    for i in range(len(score)):
        x, A, k, square = score[i], advantages[i], k3[i], d[i] * d[i]
        below = (x < low) & (low_sign >= A)
        above = (x > high) & (high_sign <= A)
        off = below | above
        lows += ONE if below else ZERO
        highs += ONE if above else ZERO
        k3_off += k if off else ZERO
        k3_on += ZERO if off else k
        square_off += square if off else ZERO
        square_on += ZERO if off else square
    out[LOW] += lows
    out[HIGH] += highs
    out[K3_DROPPED] += k3_off
    out[K3_KEPT] += k3_on
    out[SQUARE_DROPPED] += square_off
    out[SQUARE_KEPT] += square_on
    return lows + highs


@njit(**FAST)
def dropped_of_sequence(score: Any, advantages: Any, low: Any, high: Any, low_sign: Any, high_sign: Any) -> Any:
    """How many tokens of a sequence the rule drops."""
    number = ZERO
    for i in range(len(score)):
        x, own = score[i], advantages[i]
        off = ((x < low) & (own <= low_sign)) | ((x > high) & (own >= high_sign))
        number += ONE if off else ZERO
    return number


@njit(**FAST)
def mass_of_dropped(score: Any, advantages: Any, low: Any, high: Any, low_sign: Any, high_sign: Any) -> Any:
    """The |A| of those tokens, where it changes from one to the next."""
    mass = 0.0
    for i in range(len(score)):
        x, own = score[i], advantages[i]
        off = ((x < low) & (own <= low_sign)) | ((x > high) & (own >= high_sign))
        mass += np.float64(abs(own) if off else ZERO)
    return mass


@njit(**FAST)
def differing(score: Any, other: Any, advantages: Any, low: Any, high: Any, low_sign: Any, high_sign: Any) -> Any:
    """How many tokens the rule decides differently by another gap's score."""
    number = ZERO
    for i in range(len(score)):
        A = advantages[i]
        here = ((score[i] < low) & (low_sign >= A)) | ((score[i] > high) & (high_sign <= A))
        there = ((other[i] < low) & (low_sign >= A)) | ((other[i] > high) & (high_sign <= A))
        number += ONE if here != there else ZERO
    return number


@njit(**FAST)
def sides(score: Any, low: Any, high: Any, first: Any, out: Any) -> None:
    """-1 below the band and 1 above it; of several, what the first ones say stands."""
    for i in range(len(score)):
        side = -ONE if score[i] < low else (ONE if score[i] > high else ZERO)
        out[i] = side if first or out[i] == ZERO else out[i]


@njit(**FAST)
def weights(d: Any, ratio: Any, excess: Any, low: Any, high: Any, least: Any, most: Any, out: Any) -> None:
    """Sums over weights = clip(r, least, most); in float64, since r may be as large as exp(80)."""
    w, w_square, x, x_square, largest, cut = 0.0, 0.0, 0.0, 0.0, ZERO, ZERO
    for i in range(len(d)):
        weight = lesser(greater(ratio[i], least), most)
        wide = np.float64(weight)
        less_one = np.float64(lesser(greater(excess[i], least - ONE), most - ONE))
        w += wide
        w_square += wide * wide
        x += less_one
        x_square += less_one * less_one
        largest = greater(largest, weight)
        cut += ONE if (d[i] < low) | (d[i] > high) else ZERO
    out[W] += w
    out[W_SQUARE] += w_square
    out[W_EXCESS] += x
    out[W_EXCESS_SQUARE] += x_square
    out[W_MAX] = max(out[W_MAX], largest)
    out[CUT] += cut
