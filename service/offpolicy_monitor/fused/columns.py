"""Stages that fill the columns of a block. Shapes: n <= BLOCK tokens; `a`, `b` the log-probs of a gap."""

from typing import Any

import numpy as np
from numba import njit

from offpolicy_monitor.fused.arrays import AWAY, DENOMINATOR, K3, LARGER, LOG_RATIO, NUMERATOR, PROBABILITY, STRIP
from offpolicy_monitor.fused.bits import greater, lesser
from offpolicy_monitor.fused.token import (
    BIG,
    CLAMPED,
    INLINE,
    ONE,
    STRICT,
    ZERO,
    bin_key,
    binary_kls,
    density_key,
    far,
    mass_key,
    near,
    probability,
)
from offpolicy_monitor.summary.tables.density import BINS as DENSITY_BINS


@njit(**STRICT)
def probabilities(x: Any, p: Any, rest: Any) -> None:
    """p = exp(x), and 1 - p."""
    for i in range(len(x)):
        p[i], rest[i] = probability(x[i])


@njit(**INLINE)
def exponentials(block: Any, gap: Any, n: Any, a: Any, b: Any) -> None:
    """d, and what follows from it alone; strips of |d| < 1 need no exponential and no division.

    Unsigned indices into whole columns: with signed ones, or with a slice of each column a strip, this is three times
    slower.
    """
    d, k3 = block.scores[LOG_RATIO, gap], block.scores[K3, gap]
    ratio, excess, inverse = block.ratio[gap], block.excess[gap], block.inverse
    k3_reverse, js = block.k3_reverse, block.js
    for i in range(n):
        d[i] = a[i] - b[i]
    for begin in range(np.uint64(0), np.uint64(n), np.uint64(STRIP)):
        end = min(begin + np.uint64(STRIP), np.uint64(n))
        largest = ZERO
        for i in range(begin, end):
            largest = greater(largest, abs(d[i]))
        if largest < ONE:
            for i in range(begin, end):
                ratio[i], excess[i], inverse[i], k3[i], k3_reverse[i], js[i] = near(d[i])
        else:
            for i in range(begin, end):
                ratio[i], excess[i], inverse[i], k3[i], k3_reverse[i], js[i] = far(d[i])


@njit(**INLINE)
def differences(block: Any, gap: Any, n: Any) -> None:
    """exp|d| - 1, and p - q = max(p, q) (1 - exp(-|d|)) with the sign of d; p - q where exponents are clamped."""
    d, difference = block.scores[LOG_RATIO, gap][:n], block.scores[PROBABILITY, gap]
    excess, inverse, growth = block.excess[gap], block.inverse, block.growth[gap]
    p, q = block.p[NUMERATOR[gap]], block.p[DENOMINATOR[gap]]
    for i in range(len(d)):
        growth[i] = greater(excess[i], inverse[i])
        larger = greater(p[i], q[i])
        apart = larger * -lesser(excess[i], inverse[i]) if larger < CLAMPED else abs(p[i] - q[i])
        difference[i] = apart if d[i] >= ZERO else -apart


@njit(**INLINE)
def divergences(block: Any, gap: Any, n: Any) -> None:
    """KL(q || p) with the sign of d, and the larger of it and KL(p || q); probabilities above 1 are read as 1."""
    d, k3 = block.scores[LOG_RATIO, gap][:n], block.scores[K3, gap]
    difference, k3_reverse = block.scores[PROBABILITY, gap], block.k3_reverse
    p, p_rest = block.p[NUMERATOR[gap]], block.rest[NUMERATOR[gap]]
    q, q_rest = block.p[DENOMINATOR[gap]], block.rest[DENOMINATOR[gap]]
    away, larger = block.scores[AWAY, gap], block.scores[LARGER, gap]
    for i in range(len(d)):
        moved, other = binary_kls(p[i], q[i], p_rest[i], q_rest[i], d[i], k3[i], k3_reverse[i], difference[i])
        away[i] = moved if d[i] >= ZERO else -moved
        larger[i] = greater(moved, other)


@njit(**INLINE)
def divergences_above_one(block: Any, gap: Any, n: Any, a: Any, b: Any) -> None:
    """The same of tokens with a log-prob above 0, which is read as 0, in float64: there are few."""
    d, away, larger = block.scores[LOG_RATIO, gap], block.scores[AWAY, gap], block.scores[LARGER, gap]
    for i in range(n):
        if a[i] > ZERO or b[i] > ZERO:
            moved, other = _wide_kl(b[i], a[i]), _wide_kl(a[i], b[i])
            away[i] = moved if d[i] >= ZERO else -moved
            larger[i] = max(moved, other)


@njit(**STRICT)
def _wide_kl(log_q: Any, log_p: Any) -> Any:
    log_q, log_p = min(np.float64(log_q), 0.0), min(np.float64(log_p), 0.0)
    q_rest, p_rest = -np.expm1(log_q), -np.expm1(log_p)
    if q_rest > 0.0 and p_rest <= 0.0:
        return np.float64(BIG)
    other = q_rest * (np.log(q_rest) - np.log(p_rest)) if q_rest > 0.0 else 0.0
    return np.exp(log_q) * (log_q - log_p) + other


@njit(**STRICT)
def magnitudes(d: Any, out: Any) -> None:
    """|d|."""
    for i in range(len(d)):
        out[i] = abs(d[i])


@njit(**STRICT)
def bins_of(values: Any, splits: Any, bins: Any) -> None:
    """The bin of summary.histogram of each value."""
    for i in range(len(values)):
        bins[i] = bin_key(values[i])
    for i in range(len(values)):
        bins[i] = 2 * bins[i] + (1 if values[i] > splits[bins[i]] else 0)


@njit(**STRICT)
def mass_keys(ratio: Any, advantages: Any, keys: Any) -> None:
    """The key of |A r| of each token."""
    for i in range(len(ratio)):
        keys[i] = mass_key(advantages[i] * ratio[i])


@njit(**STRICT)
def density_keys(numerator: Any, mu: Any, keys: Any) -> None:
    """The cell of summary.tables.density of each token."""
    for i in range(len(mu)):
        keys[i] = density_key(numerator[i]) * DENSITY_BINS + density_key(mu[i])
