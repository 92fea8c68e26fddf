"""Stages that add up columns of a block. Shapes: n <= BLOCK tokens, each column [n]; results go to where they are kept.

Sums are float64, and so are terms that float32 does not hold. Where most is added up (`total_of`, `squares_of`,
`sums_by_bucket`) four float32 terms are added in float32 first. That is exact where they are equal, and otherwise off
by 2^-23 of their magnitudes at most, however wide the processor's vectors are. (In float32 alone hundreds of equal
terms, which are all rounded the same way, are off by more than 1e-6.) The order of additions within a block is the
compiler's, the same every time; that of blocks is theirs.
"""

from typing import Any, Final

import numpy as np
from numba import njit

from offpolicy_monitor.fused.arrays import (
    ADVANTAGE_EXCESS,
    BAD,
    BINS,
    CELL,
    CHANGED,
    CLAMPED,
    DEVIATION,
    DIFFERENCE,
    DIFFERENCE_MAX,
    DIFFERENCE_SQUARE,
    EXCESS,
    JS,
    K3,
    K3_REVERSE,
    K3_SIGNS,
    LOG_RATIO,
    MASS_SQUARE,
    MEAN,
    NEGATIVE_MASS,
    NEGATIVES,
    OUTWARD,
    OUTWARD_SQUARE,
    POSITIVE_MASS,
    POSITIVES,
    RATIO,
    SEEN,
    SQUARE_SIGNS,
    TAIL,
    WEIGHT,
    WEIGHT_EXCESS,
    WEIGHT_EXCESS_SQUARE,
    WEIGHT_SQUARE,
)
from offpolicy_monitor.fused.bits import greater, lesser
from offpolicy_monitor.fused.token import BIG, CLAMP, INNER, ONE, ZERO, f
from offpolicy_monitor.vocabulary import WEIGHT_CLAMP

FAST: Final[dict[str, Any]] = {
    **INNER,
    "fastmath": {"reassoc", "nsz", "contract", "arcp", "nnan"},
}
INLINE: Final[dict[str, Any]] = {**FAST, "forceinline": True}

#: A token whose ratio is beyond 2 or 1/2 is in the tail.
_LN2 = f(0.6931471805599453)
#: w = exp(clip(d, +-20)), the definition of chi2 and ESS.
_WEIGHT_CLAMP = f(WEIGHT_CLAMP)
_W_LEAST, _W_MOST = f(np.exp(-WEIGHT_CLAMP)), f(np.exp(WEIGHT_CLAMP))
_X_LEAST, _X_MOST = f(np.expm1(-WEIGHT_CLAMP)), f(np.expm1(WEIGHT_CLAMP))
#: A token whose two probabilities differ by more is a disagreement that no rounding explains.
EXTREME: Final = f(0.5)


@njit(**FAST)
def ratio_sums(d: Any, ratio: Any, excess: Any, k3_reverse: Any, js: Any, out: Any) -> None:
    """Sums over r and its kin, and counts of |d|: `out` is a gap's token sums."""
    tail, changed, clamped, cut = ZERO, ZERO, ZERO, ZERO
    for i in range(len(d)):
        magnitude = abs(d[i])
        tail += ONE if magnitude > _LN2 else ZERO
        changed += ONE if magnitude > ZERO else ZERO
        clamped += ONE if magnitude > CLAMP else ZERO
        cut += ONE if magnitude > _WEIGHT_CLAMP else ZERO
    w, w_square, x, x_square = total_of(ratio), squares_of(ratio), total_of(excess), squares_of(excess)
    out[K3_REVERSE] += total_of(k3_reverse)
    out[JS] += total_of(js)
    out[RATIO] += w
    out[EXCESS] += x
    out[TAIL] += tail
    out[CHANGED] += changed
    out[CLAMPED] += clamped
    if cut > ZERO:
        w, w_square, x, x_square = _weight_sums(ratio, excess)
    out[WEIGHT] += w
    out[WEIGHT_SQUARE] += w_square
    out[WEIGHT_EXCESS] += x
    out[WEIGHT_EXCESS_SQUARE] += x_square


@njit(**FAST)
def _weight_sums(ratio: Any, excess: Any) -> Any:
    """Sums of w, w^2, w - 1 and (w - 1)^2 of weights w, some of which are cut."""
    w, w_square, x, x_square = 0.0, 0.0, 0.0, 0.0
    for i in range(len(ratio)):
        weight = lesser(greater(ratio[i], _W_LEAST), _W_MOST)
        less_one = lesser(greater(excess[i], _X_LEAST), _X_MOST)
        w += np.float64(weight)
        w_square += np.float64(weight * weight)
        x += np.float64(less_one)
        x_square += np.float64(less_one * less_one)
    return w, w_square, x, x_square


@njit(**FAST)
def difference_sums(difference: Any, out: Any) -> None:
    """Sum, squares and maximum of |p - q|; in float64, which holds the squares of what float32 holds."""
    total, square, largest = 0.0, 0.0, ZERO
    for i in range(len(difference)):
        x = abs(difference[i])
        largest = greater(largest, x)
        wide = np.float64(x)
        total += wide
        square += wide * wide
    out[DIFFERENCE] += total
    out[DIFFERENCE_SQUARE] += square
    out[DIFFERENCE_MAX] = max(out[DIFFERENCE_MAX], largest)


@njit(**FAST)
def products(p0: Any, p1: Any, p2: Any, out: Any) -> None:
    """[9]: sums of three columns, of their squares, and of the products of mu old, old pi, mu pi; in float64."""
    a, b, c, aa, bb, cc, ab, bc, ac = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for i in range(len(p0)):
        x, y, z = np.float64(p0[i]), np.float64(p1[i]), np.float64(p2[i])
        a += x
        b += y
        c += z
        aa += x * x
        bb += y * y
        cc += z * z
        ab += x * y
        bc += y * z
        ac += x * z
    out[0] += a
    out[1] += b
    out[2] += c
    out[3] += aa
    out[4] += bb
    out[5] += cc
    out[6] += ab
    out[7] += bc
    out[8] += ac


@njit(**FAST)
def deviation(d: Any, total: Any, out: Any) -> None:
    """Sum of (d - mean d)^2 by blocks: each about its own mean, joined by Chan, Golub and LeVeque (1979)."""
    n = len(d)
    centre = f(total / n)
    apart, square = 0.0, 0.0
    for i in range(n):
        x = d[i] - centre
        apart += np.float64(x)
        square += np.float64(x * x)
    join(out, np.float64(n), np.float64(centre) + apart / n, square - apart * apart / n)


@njit(**FAST)
def join(out: Any, n: Any, mean: Any, square: Any) -> None:
    """Join n tokens of this mean and squared deviation to those seen."""
    seen = out[SEEN]
    step = mean - out[MEAN]
    out[SEEN] = seen + n
    out[MEAN] += step * n / (seen + n)
    out[DEVIATION] += square + step * step * seen * n / (seen + n)


@njit(**FAST)
def run_sums(d: Any, k3: Any, growth: Any, out: Any) -> None:
    """[8]: sum of d, |d|, d^2, k3, exp|d| - 1, float32 terms in float64; least and most d, least |d|."""
    total, size, square, divergence, grown = 0.0, 0.0, 0.0, 0.0, 0.0
    least, most, nearest = BIG, -BIG, BIG
    for i in range(len(d)):
        x = d[i]
        magnitude, wide = abs(x), np.float64(x)
        total += wide
        size += abs(wide)
        square += np.float64(x * x)
        divergence += np.float64(k3[i])
        grown += np.float64(growth[i])
        least = lesser(least, x)
        most = greater(most, x)
        nearest = lesser(nearest, magnitude)
    out[0] = total
    out[1] = size
    out[2] = square
    out[3] = divergence
    out[4] = grown
    out[5] = least
    out[6] = most
    out[7] = nearest


@njit(**FAST)
def dot(x: Any, y: Any) -> Any:
    """Sum of x y, float32 terms in float64."""
    total = 0.0
    for i in range(len(x)):
        total += np.float64(x[i] * y[i])
    return total


@njit(**FAST)
def total_of(x: Any) -> Any:
    """Sum of x."""
    quarter, total = len(x) // 4, 0.0
    for i in range(quarter):
        total += _four(x[i], x[i + quarter], x[i + 2 * quarter], x[i + 3 * quarter])
    for i in range(4 * quarter, len(x)):
        total += np.float64(x[i])
    return total


@njit(**FAST)
def doubles_of(x: Any) -> Any:
    """Sum of x, each term as float64: of what exp is taken of, which makes an absolute error a relative one."""
    total = 0.0
    for i in range(len(x)):
        total += np.float64(x[i])
    return total


@njit(**FAST)
def squares_of(x: Any) -> Any:
    """Sum of x^2."""
    quarter, total = len(x) // 4, 0.0
    for i in range(quarter):
        a, b, c, d = x[i], x[i + quarter], x[i + 2 * quarter], x[i + 3 * quarter]
        total += _four(a * a, b * b, c * c, d * d)
    for i in range(4 * quarter, len(x)):
        total += np.float64(x[i] * x[i])
    return total


@njit(**INLINE)
def _four(a: Any, b: Any, c: Any, d: Any) -> Any:
    """Their sum in float32, as float64."""
    return np.float64((a + b) + (c + d))


@njit(**FAST)
def extremes(x: Any) -> Any:
    """Least, most and least magnitude."""
    least, most, nearest = BIG, -BIG, BIG
    for i in range(len(x)):
        least = lesser(least, x[i])
        most = greater(most, x[i])
        nearest = lesser(nearest, abs(x[i]))
    return least, most, nearest


@njit(**FAST)
def mass_sums(advantages: Any, ratio: Any, excess: Any, out: Any) -> None:
    """Sums of A (r - 1) and (A r)^2, in float64: a ratio may be as large as exp(80)."""
    weighted, square = 0.0, 0.0
    for i in range(len(advantages)):
        wide = np.float64(advantages[i])
        mass = wide * np.float64(ratio[i])
        weighted += wide * np.float64(excess[i])
        square += mass * mass
    out[ADVANTAGE_EXCESS] += weighted
    out[MASS_SQUARE] += square


@njit(**FAST)
def advantage_sums(advantages: Any, out: Any) -> None:
    """[2]: sums of |A| and A^2."""
    size, square = 0.0, 0.0
    for i in range(len(advantages)):
        wide = np.float64(advantages[i])
        size += abs(wide)
        square += wide * wide
    out[0] += size
    out[1] += square


@njit(**FAST)
def updates_at_risk(advantages: Any, d: Any, difference: Any, out: Any) -> None:
    """Tokens with A < 0 that became much less likely; tokens with A d > 0, and the sum of their d^2."""
    bad, outward, square = ZERO, ZERO, 0.0
    for i in range(len(d)):
        A = advantages[i]
        sign = (ONE if A > ZERO else ZERO) - (ONE if A < ZERO else ZERO)
        outer = greater(sign * d[i], ZERO)
        bad += ONE if lesser(sign, ZERO) * difference[i] > EXTREME else ZERO
        outward += ONE if outer > ZERO else ZERO
        square += np.float64(outer * outer)
    out[BAD] += bad
    out[OUTWARD] += outward
    out[OUTWARD_SQUARE] += square


@njit(**FAST)
def sums_by_sign(groups: Any, d: Any, k3: Any, out: Any) -> None:
    """k3 and d^2 of a sequence's tokens with A < 0, A == 0, A > 0, in float64; their counts begin at `groups`."""
    for sign in range(3):
        divergence, square, group = 0.0, 0.0, np.uint16(sign * BINS)
        for i in range(len(d)):
            on = groups[i] == group
            x = d[i] if on else ZERO
            divergence += np.float64(k3[i] if on else ZERO)
            square += np.float64(x * x)
        out[K3_SIGNS + sign] += divergence
        out[SQUARE_SIGNS + sign] += square


@njit(**FAST)
def advantages_by_sign(advantages: Any, out: Any) -> None:
    """How many tokens of a sequence have A < 0 and A > 0, and the sum of their |A|."""
    negatives, positives, negative, positive = 0.0, 0.0, 0.0, 0.0
    for i in range(len(advantages)):
        A = np.float64(advantages[i])
        negatives += 1.0 if A < 0.0 else 0.0
        positives += 1.0 if A > 0.0 else 0.0
        negative += -A if A < 0.0 else 0.0
        positive += A if A > 0.0 else 0.0
    out[NEGATIVES] += negatives
    out[POSITIVES] += positives
    out[NEGATIVE_MASS] += negative
    out[POSITIVE_MASS] += positive


@njit(**FAST)
def sums_by_bucket(block: Any, n: Any, out: Any) -> None:
    """out [CELL, buckets]: a breakdown of n tokens whose buckets, the block's keys, change from one to the next."""
    keys = block.keys
    first, last = keys[0], keys[0]
    for i in range(n):
        first = keys[i] if keys[i] < first else first
        last = keys[i] if keys[i] > last else last
    quarter = (n + 3) // 4
    keys[n : 4 * quarter] = last + 1
    m, s = block.scores[LOG_RATIO, 0], block.scores[LOG_RATIO, 1]
    for bucket in range(first, last + 1):
        key = np.uint16(bucket)
        number, product = ZERO, 0.0
        for i in range(n):
            on = keys[i] == key
            number += ONE if on else ZERO
            product += np.float64(m[i] * s[i] if on else ZERO)
        out[0, bucket] += number
        out[CELL - 1, bucket] += product
        for gap in range(3):
            d, k3 = block.scores[LOG_RATIO, gap], block.scores[K3, gap]
            total, size, square, divergence = 0.0, 0.0, 0.0, 0.0
            for i in range(quarter):
                w, x, y, z = _four_of(d, keys, key, i, quarter)
                total += _four(w, x, y, z)
                size += _four(abs(w), abs(x), abs(y), abs(z))
                square += _four(w * w, x * x, y * y, z * z)
                w, x, y, z = _four_of(k3, keys, key, i, quarter)
                divergence += _four(w, x, y, z)
            out[1 + 4 * gap, bucket] += total
            out[2 + 4 * gap, bucket] += size
            out[3 + 4 * gap, bucket] += square
            out[4 + 4 * gap, bucket] += divergence


@njit(**INLINE)
def _four_of(x: Any, keys: Any, key: Any, i: Any, quarter: Any) -> Any:
    """Four of x, a quarter of all tokens apart; 0 for those of another key."""
    second, third, fourth = i + quarter, i + 2 * quarter, i + 3 * quarter
    return (
        x[i] if keys[i] == key else ZERO,
        x[second] if keys[second] == key else ZERO,
        x[third] if keys[third] == key else ZERO,
        x[fourth] if keys[fourth] == key else ZERO,
    )


@njit(**FAST)
def regression(b: Any, d: Any, lowest: Any, highest: Any, out: Any) -> None:
    """[7]: n, sum b, d, b^2, b d, d^2 over tokens with lowest < b < highest, and how many of them have d = 0."""
    number, sum_b, sum_d, bb, bd, dd, exact = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for i in range(len(d)):
        on = (b[i] > lowest) & (b[i] < highest)
        x = np.float64(b[i] if on else ZERO)
        y = np.float64(d[i] if on else ZERO)
        number += 1.0 if on else 0.0
        sum_b += x
        sum_d += y
        bb += x * x
        bd += x * y
        dd += y * y
        exact += 1.0 if on & (d[i] == ZERO) else 0.0
    out[0] += number
    out[1] += sum_b
    out[2] += sum_d
    out[3] += bb
    out[4] += bd
    out[5] += dd
    out[6] += exact


@njit(**FAST)
def moments(a: Any, b: Any, out: Any) -> None:
    """[4]: sums of a, b, a^2, b^2; in float64, since all but the ends of sequences is taken off again."""
    sum_a, sum_b, aa, bb = 0.0, 0.0, 0.0, 0.0
    for i in range(len(a)):
        x, y = np.float64(a[i]), np.float64(b[i])
        sum_a += x
        sum_b += y
        aa += x * x
        bb += y * y
    out[0] += sum_a
    out[1] += sum_b
    out[2] += aa
    out[3] += bb


@njit(**FAST)
def neighbours(a: Any, b: Any, out: Any) -> None:
    """[2]: sums of a_t b_(t+1) and of a_(t+1) b_t over the pairs of neighbours."""
    forward, backward = 0.0, 0.0
    for i in range(len(a) - 1):
        forward += np.float64(a[i] * b[i + 1])
        backward += np.float64(a[i + 1] * b[i])
    out[0] += forward
    out[1] += backward
