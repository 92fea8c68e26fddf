"""Stages of the rules on tokens. Shapes: n <= BLOCK tokens, each column [n].

band = (low, high, low_sign, high_sign): a rule drops a token below `low` where A is at most `low_sign`, and above
`high` where A is at least `high_sign`; bounds that are not there, and signs that do not matter, are infinite.
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
from offpolicy_monitor.fused.sums import FAST, INLINE
from offpolicy_monitor.fused.token import ONE, ZERO


@njit(**INLINE)
def low(x: Any, A: Any, band: Any) -> Any:
    """Whether a token is dropped for being below the band."""
    return (x < band[0]) & (band[2] >= A)


@njit(**INLINE)
def off(x: Any, A: Any, band: Any) -> Any:
    """Whether a token is dropped."""
    return low(x, A, band) | ((x > band[1]) & (band[3] <= A))


@njit(**FAST)
def dropped(score: Any, k3: Any, d: Any, advantages: Any, band: Any, out: Any) -> Any:
    """Add up what the rule drops and keeps; how many it drops."""
    number, lows, k3_off, k3_on, square_off, square_on = ZERO, ZERO, 0.0, 0.0, 0.0, 0.0
    for i in range(len(score)):
        x, A, k, square = score[i], advantages[i], k3[i], d[i] * d[i]
        here = off(x, A, band)
        number += ONE if here else ZERO
        lows += ONE if low(x, A, band) else ZERO
        k3_off += np.float64(k if here else ZERO)
        k3_on += np.float64(ZERO if here else k)
        square_off += np.float64(square if here else ZERO)
        square_on += np.float64(ZERO if here else square)
    out[LOW] += lows
    out[HIGH] += number - lows
    out[K3_DROPPED] += k3_off
    out[K3_KEPT] += k3_on
    out[SQUARE_DROPPED] += square_off
    out[SQUARE_KEPT] += square_on
    return number


@njit(**FAST)
def dropped_of_sequence(score: Any, advantages: Any, band: Any) -> Any:
    """How many tokens of a sequence the rule drops."""
    number = ZERO
    for i in range(len(score)):
        number += ONE if off(score[i], advantages[i], band) else ZERO
    return number


@njit(**FAST)
def mass_of_dropped(score: Any, advantages: Any, band: Any) -> Any:
    """The |A| of those tokens, where it changes from one to the next."""
    mass = 0.0
    for i in range(len(score)):
        mass += np.float64(abs(advantages[i]) if off(score[i], advantages[i], band) else ZERO)
    return mass


@njit(**FAST)
def differing(score: Any, other: Any, advantages: Any, band: Any) -> Any:
    """How many tokens the rule decides differently by another gap's score."""
    number = ZERO
    for i in range(len(score)):
        A = advantages[i]
        number += ONE if off(score[i], A, band) != off(other[i], A, band) else ZERO
    return number


@njit(**FAST)
def kept(score: Any, advantages: Any, band: Any, out: Any) -> None:
    """0 for the tokens that the rule drops."""
    for i in range(len(score)):
        out[i] = not off(score[i], advantages[i], band)


@njit(**FAST)
def sides(score: Any, lowest: Any, highest: Any, first: Any, out: Any) -> None:
    """-1 below the band and 1 above it; of several, what the first ones say stands."""
    for i in range(len(score)):
        side = -ONE if score[i] < lowest else (ONE if score[i] > highest else ZERO)
        out[i] = side if first or out[i] == ZERO else out[i]


@njit(**FAST)
def weights(d: Any, ratio: Any, excess: Any, band: Any, least: Any, most: Any, out: Any) -> None:
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
        cut += ONE if (d[i] < band[0]) | (d[i] > band[1]) else ZERO
    out[W] += w
    out[W_SQUARE] += w_square
    out[W_EXCESS] += x
    out[W_EXCESS_SQUARE] += x_square
    out[W_MAX] = max(out[W_MAX], largest)
    out[CUT] += cut
