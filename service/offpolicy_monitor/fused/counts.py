"""Stages that count tokens by bin. Shapes: n <= BLOCK tokens, each column [n].

Bins of neighbours are often the same, and an addition must wait for the one before it; where that is the rule, four
banks of counts take turns.
"""

from typing import Any

import numpy as np
from numba import njit

from offpolicy_monitor.fused.arrays import BINS, LENGTHS, NEUTRAL, NO_BUCKET, STRIP
from offpolicy_monitor.fused.bits import finite, pattern
from offpolicy_monitor.fused.token import INLINE, STRICT, f
from offpolicy_monitor.summary.tables.signature import GRID_EXPONENTS

#: Bits of a float32 significand beyond its first 11.
_SPARE_BITS = (1 << 13) - 1
_FINEST = f(2.0 ** GRID_EXPONENTS[-1])
_POWERS = np.array([2.0**k for k in GRID_EXPONENTS], np.float32)


@njit(**STRICT)
def sign_of(advantage: Any) -> Any:
    """NEGATIVE, NEUTRAL or POSITIVE."""
    return np.int32(NEUTRAL) + np.int32(advantage > 0) - np.int32(advantage < 0)


@njit(**STRICT)
def length_group(length: Any) -> Any:
    """floor(log2(length)), at most LENGTHS - 1."""
    group = 0
    while group < LENGTHS - 1 and (length >> (group + 1)) > 0:
        group += 1
    return group


@njit(**STRICT)
def signs_of(groups: Any, keys: Any) -> None:
    """The sign that each token's group is of."""
    for i in range(len(groups)):
        keys[i] = groups[i] // BINS


@njit(**STRICT)
def by_sign_and_bin(bins: Any, groups: Any, out: Any) -> None:
    """Count each token in the bin that its group begins at."""
    for i in range(len(bins)):
        out[groups[i] + bins[i]] += 1


@njit(**STRICT)
def by_coarse_bin(bins: Any, coarse: Any, out: Any) -> None:
    """Count each token of a sequence in the coarse bin of its bin, in four banks: out [4, coarse bins]."""
    n = len(bins)
    whole = n // 4 * 4
    first, second, third, fourth = out[0], out[1], out[2], out[3]
    for i in range(0, whole, 4):
        first[coarse[bins[i]]] += 1
        second[coarse[bins[i + 1]]] += 1
        third[coarse[bins[i + 2]]] += 1
        fourth[coarse[bins[i + 3]]] += 1
    for i in range(whole, n):
        first[coarse[bins[i]]] += 1


@njit(**STRICT)
def by_sign_and_coarse_bin(
    bins: Any, coarse: Any, groups: Any, advantages: Any, length: Any, out: Any, mass: Any
) -> None:
    """Where advantages change from token to token: out [3, LENGTHS, bins], mass [3, bins] of |A|; by the sign that
    the group of each is of."""
    for i in range(len(bins)):
        bin, sign = coarse[bins[i]], groups[i] // BINS
        out[sign, length, bin] += 1
        mass[sign, bin] += abs(np.float64(advantages[i]))


@njit(**STRICT)
def in_banks(keys: Any, out: Any) -> None:
    """Count keys in four banks: out [4, keys]."""
    n = len(keys)
    whole = n // 4 * 4
    first, second, third, fourth = out[0], out[1], out[2], out[3]
    for i in range(0, whole, 4):
        first[keys[i]] += 1
        second[keys[i + 1]] += 1
        third[keys[i + 2]] += 1
        fourth[keys[i + 3]] += 1
    for i in range(whole, n):
        first[keys[i]] += 1


@njit(**STRICT)
def buckets_of(values: Any, edges: Any, keys: Any) -> None:
    """How many of seven ascending edges are at most each value; 8 for what is not finite."""
    e0, e1, e2, e3, e4, e5, e6 = edges[0], edges[1], edges[2], edges[3], edges[4], edges[5], edges[6]
    for i in range(len(values)):
        x = values[i]
        bucket = (
            np.int32(x >= e0) + np.int32(x >= e1) + np.int32(x >= e2) + np.int32(x >= e3) + np.int32(x >= e4)
            + np.int32(x >= e5) + np.int32(x >= e6)
        )  # fmt: skip
        keys[i] = bucket if finite(x) else np.int32(NO_BUCKET)


@njit(**INLINE)
def is_short(value: Any) -> Any:
    """Whether a float32 has at most 11 significant bits."""
    return (pattern(value) & _SPARE_BITS) == 0


@njit(**INLINE)
def is_whole(value: Any) -> Any:
    """Whether there is nothing behind the point."""
    return np.floor(value) == value


@njit(**STRICT)
def grid(values: Any, least: Any, out: Any) -> None:
    """[8]: of |value| >= least: how many, how many have at most 11 significant bits, and how many of those are
    multiples of 2^-k, for each k of GRID_EXPONENTS."""
    for begin in range(0, len(values), STRIP):
        strip = values[begin : min(begin + STRIP, len(values))]
        large: Any = 0
        short: Any = 0
        for i in range(len(strip)):
            on = abs(strip[i]) >= least
            large += np.int32(on)
            short += np.int32(on & is_short(strip[i]))
        out[0] += large
        out[1] += short
        fine: Any = 0
        if short:
            for i in range(len(strip)):
                fine += np.int32((abs(strip[i]) >= least) & is_short(strip[i]) & is_whole(strip[i] * _FINEST))
        if fine:
            for k in range(len(_POWERS)):
                multiples: Any = 0
                for i in range(len(strip)):
                    on = (abs(strip[i]) >= least) & is_short(strip[i])
                    multiples += np.int32(on & is_whole(strip[i] * _POWERS[k]))
                out[2 + k] += multiples
