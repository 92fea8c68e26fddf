"""The mathematics of one token, as scalar float32 functions that numba compiles into the loops around them.

Notation of core.columns: d = a - b in nats, r = exp(d). Every function is the formula of core.divergences of the same
figure, to float32 rounding; where a difference of near numbers would lose its digits, a series stands instead.
Floating point is strict here but for the contraction of a product and a sum: only sums over tokens are reordered.
"""

import math
from typing import Any, Final

import numpy as np
from numba import njit

from offpolicy_monitor.fused.bits import (
    exponent_and_mantissa,
    greater,
    lesser,
    power_of_two,
    signed_like,
    top_bits,
)
from offpolicy_monitor.summary import histogram
from offpolicy_monitor.summary.tables import advantage, density
from offpolicy_monitor.vocabulary import EXPONENT_CLAMP

f = np.float32
#: Of what compiled code alone calls: Python and C get no entry to it, each of which is compiled with all of it again.
WITHIN: Final[dict[str, Any]] = {"error_model": "numpy", "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
#: The same of what makes no array, which numba makes sure of: no references are counted, since that takes two atomic
#: additions for every slice. Whoever calls it holds the arrays.
INNER: Final[dict[str, Any]] = {**WITHIN, "_nrt": False}
STRICT: Final[dict[str, Any]] = {**INNER, "fastmath": {"contract"}}
INLINE: Final[dict[str, Any]] = {**STRICT, "forceinline": True}
#: Of what takes whole tuples of arrays, inlined into one function: some two hundred numbers stand for a Plan, a Block
#: and Sums wherever they are passed.
STAGES: Final[dict[str, Any]] = {**INNER, "forceinline": True}
#: What makes an entry for Python of any of them, which runs without the interpreter's lock.
ENTRY: Final[dict[str, Any]] = {"no_cpython_wrapper": False, "nogil": True}
PASS: Final[dict[str, Any]] = {**WITHIN, **ENTRY}
#: The same of what is over in some 0.05 ms, and keeps the lock: where others want it, getting it back takes longer.
SHORT_ENTRY: Final[dict[str, Any]] = {**ENTRY, "nogil": False}
SHORT: Final[dict[str, Any]] = {**WITHIN, **SHORT_ENTRY}

ZERO, QUARTER, HALF, ONE, TWO, FOUR = f(0), f(0.25), f(0.5), f(1), f(2), f(4)
#: The argument of an exponential is clamped to +- this.
CLAMP = f(EXPONENT_CLAMP)
#: Just below exp(CLAMP): a p as large is of an exponent that was clamped, or nearly so.
CLAMPED = f(math.exp(EXPONENT_CLAMP) * (1 - 2.0**-20))
#: Stands for a bound that is not there; no finite figure of a token comes near it.
BIG = f(3e38)
#: The least normal number: the log of less than that, which only subnormal log-probs are from 0, is taken as its log.
LEAST_NORMAL = f(2.0**-126)

_LOG2_E, _LN2, _LN2_HIGH, _LN2_LOW = f(1.4426950408889634), f(0.6931471805599453), f(0.693359375), f(-2.12194440e-4)
_ROUNDING = f(1.5 * 2**23)
_LOWEST_EXPONENT, _HIGHEST_EXPONENT = f(-87.3), f(88.3)
# exp(x) = 1 + x + x^2 P(x) for |x| < ln(2) / 2, of the Cephes library (https://www.netlib.org/cephes), expf
_P0, _P1, _P2, _P3, _P4, _P5 = (
    f(1.9875691500e-4), f(1.3981999507e-3), f(8.3334519073e-3), f(4.1665795894e-2), f(1.6666665459e-1),
    f(5.0000001201e-1),
)  # fmt: skip
# cosh(x) - 1 and sinh(x) - x in powers of x^2: 1 / 2!, 1 / 4!, ... and 1 / 3!, 1 / 5!, ...
_C2, _C4, _C6, _C8, _C10, _C12 = f(1 / 2), f(1 / 24), f(1 / 720), f(1 / 40320), f(1 / 3628800), f(1 / 479001600)
_S3, _S5, _S7, _S9, _S11 = f(1 / 6), f(1 / 120), f(1 / 5040), f(1 / 362880), f(1 / 39916800)
# log cosh(x) in powers of x^2
_J1, _J2, _J3, _J4, _J5, _J6 = f(1 / 2), f(-1 / 12), f(1 / 45), f(-17 / 2520), f(31 / 14175), f(-691 / 935550)
_J7 = f(10922 / 42567525)
# atanh(z) / z - 1 in powers of z^2, interpolated at Chebyshev points of z^2 in 0 .. 1/4: relative error 6e-9
_A2, _A4, _A6, _A8, _A10, _A12 = (
    f(0.33333332), f(0.20000473), f(0.1426398), f(0.11469875), f(0.0649349), f(0.1575178),
)  # fmt: skip
_BIN_SHIFT = 23 - histogram.MANTISSA_BITS
_BIN_LEAST = f(2.0**histogram.SMALLEST_EXPONENT * (1 - 2.0 ** -(histogram.MANTISSA_BITS + 1)))
_BIN_MOST = f(2.0**histogram.LARGEST_EXPONENT)
_BIN_BASE = ((127 + histogram.SMALLEST_EXPONENT) << histogram.MANTISSA_BITS) - 1
LARGEST_KEY = histogram.LARGEST_KEY

_MASS_SHIFT = 23 - advantage.MANTISSA_BITS
_MASS_LEAST = f(2.0**advantage.SMALLEST_EXPONENT * (1 - 2.0 ** -(advantage.MANTISSA_BITS + 1)))
_MASS_MOST = f(2.0**advantage.LARGEST_EXPONENT)
_MASS_BASE = ((127 + advantage.SMALLEST_EXPONENT) << advantage.MANTISSA_BITS) - 1
MASS_KEYS = 2 + ((advantage.LARGEST_EXPONENT - advantage.SMALLEST_EXPONENT) << advantage.MANTISSA_BITS)

_DENSITY_SHIFT = 23 - density.MANTISSA_BITS
_DENSITY_LEAST = f(0.75 * 2.0**density.SMALLEST_EXPONENT)
_DENSITY_MOST = f(2.0**density.LARGEST_EXPONENT)
_DENSITY_BASE = ((127 + density.SMALLEST_EXPONENT) << density.MANTISSA_BITS) - 1


@njit(**INLINE)
def scale_and_growth(x: Any) -> Any:
    """(s, g) of exp(x) = s (1 + g) with s = 2^n and |log(1 + g)| < log(2) / 2, relative errors 1e-7; constant below
    -87.3 and above 88.3, where float32 ends."""
    x = lesser(greater(x, _LOWEST_EXPONENT), _HIGHEST_EXPONENT)
    shifted = x * _LOG2_E + _ROUNDING
    n = shifted - _ROUNDING
    y = (x - n * _LN2_HIGH) - n * _LN2_LOW
    p = ((((_P0 * y + _P1) * y + _P2) * y + _P3) * y + _P4) * y + _P5
    return power_of_two(shifted), p * (y * y) + y


@njit(**INLINE)
def exponential(x: Any) -> Any:
    """exp(x)."""
    scale, grown = scale_and_growth(x)
    return (ONE + grown) * scale


@njit(**INLINE)
def probability(log_prob: Any) -> Any:
    """p, and 1 - p with all its digits: 0 for log-probs above 0."""
    scale, grown = scale_and_growth(lesser(log_prob, CLAMP))
    return (ONE + grown) * scale, greater((ONE - scale) - scale * grown, ZERO)


@njit(**INLINE)
def beyond_first(s: Any) -> Any:
    """atanh(z) / z - 1 of s = z^2 <= 1/4: what follows the first term of the series."""
    return s * (_A2 + s * (_A4 + s * (_A6 + s * (_A8 + s * (_A10 + s * _A12)))))


@njit(**INLINE)
def near(d: Any) -> Any:
    """r, r - 1, 1/r - 1, k3, k3 reversed and the Jensen-Shannon term of |d| < 1: polynomials alone."""
    s = d * d
    even = s * (_C2 + s * (_C4 + s * (_C6 + s * (_C8 + s * (_C10 + s * _C12)))))
    odd = s * d * (_S3 + s * (_S5 + s * (_S7 + s * (_S9 + s * _S11))))
    h = s * QUARTER
    js = h * (_J1 + h * (_J2 + h * (_J3 + h * (_J4 + h * (_J5 + h * (_J6 + h * _J7))))))
    excess = even + odd + d
    return ONE + excess, excess, even - odd - d, even + odd, even - odd, js


@njit(**INLINE)
def far(d: Any) -> Any:
    """The same of any d, exponents clamped to +-80; of |d| < 1 bit by bit what `near` gives."""
    x = lesser(greater(d, -CLAMP), CLAMP)
    ratio = exponential(x)
    above, below = ratio - ONE, ONE / ratio - ONE
    r, excess, inverse, k3, k3_reverse, js = near(lesser(greater(d, -ONE), ONE))
    small = abs(d) < ONE
    ratio = r if small else ratio
    excess = excess if small else above
    inverse = inverse if small else below
    k3 = k3 if small else above - d
    k3_reverse = k3_reverse if small else below + d
    return ratio, excess, inverse, k3, k3_reverse, js if small else log_cosh(abs(d), lesser(above, below))


@njit(**INLINE)
def log_cosh(magnitude: Any, shrink: Any) -> Any:
    """log cosh(d / 2) = |d| / 2 + log1p(shrink / 2) of |d| >= 1, with shrink = expm1(-|d|)."""
    z = shrink / (FOUR + shrink)
    s = z * z
    return magnitude * HALF + TWO * (z + z * beyond_first(s))


@njit(**INLINE)
def binary_kls(
    p: Any, q: Any, p_rest: Any, q_rest: Any, d: Any, k3: Any, k3_reverse: Any, difference: Any
) -> Any:  # fmt: skip
    """KL(q || p) and KL(p || q) of Bernoulli(p) and Bernoulli(q), each of two terms that are never below 0.

    KL(q || p) = q k3(d) + (1-q) k3(log (1-p)/(1-q)), and so the other way round; d = log p/q; p_rest, q_rest = 1 - p,
    1 - q; difference = p - q = q_rest - p_rest. BIG where what is drawn from has a rest and the other has none.
    Of d > 1 the first term is (p - q) - q d, since q may be below what float32 holds where q exp(d) is not.
    """
    first = q * k3 if d < ONE else difference - q * d
    first_reverse = p * k3_reverse if d > -ONE else p * d - difference
    # log (1-q)/(1-p) = e log 2 + 2 atanh(z); of rests within 3 of one another e = 0, and then
    # (1-q) k3 = (p - q) z + 2 (1-q) (atanh(z) - z), where nothing cancels
    total = p_rest + q_rest
    alike = abs(difference) < total * HALF
    p_exponent, p_mantissa = exponent_and_mantissa(greater(p_rest, LEAST_NORMAL))
    q_exponent, q_mantissa = exponent_and_mantissa(greater(q_rest, LEAST_NORMAL))
    z = (difference if alike else q_mantissa - p_mantissa) / (total if alike else q_mantissa + p_mantissa)
    s = z * z
    curved = TWO * z * beyond_first(s)
    log = (q_exponent - p_exponent) * _LN2 + (TWO * z + curved)
    common = difference * z
    other = common + q_rest * curved if alike else q_rest * log - difference
    other_reverse = common - p_rest * curved if alike else difference - p_rest * log
    other = BIG if (p_rest <= ZERO) & (q_rest > ZERO) else other
    other_reverse = BIG if (q_rest <= ZERO) & (p_rest > ZERO) else other_reverse
    return (
        first + (other if q_rest > ZERO else -difference),
        first_reverse + (other_reverse if p_rest > ZERO else difference),
    )


@njit(**INLINE)
def bin_key(value: Any) -> Any:
    """From 0: the unsplit bin of summary.histogram."""
    magnitude = lesser(greater(abs(value), _BIN_LEAST), _BIN_MOST)
    return LARGEST_KEY + signed_like(top_bits(magnitude, _BIN_SHIFT, _BIN_BASE), value)


@njit(**INLINE)
def mass_key(value: Any) -> Any:
    """The key of summary.tables.advantage of |value|."""
    return top_bits(lesser(greater(abs(value), _MASS_LEAST), _MASS_MOST), _MASS_SHIFT, _MASS_BASE)


@njit(**INLINE)
def density_key(log_prob: Any) -> Any:
    """The bin of summary.tables.density of a log-prob, from p near 1 on."""
    return top_bits(lesser(greater(-log_prob, _DENSITY_LEAST), _DENSITY_MOST), _DENSITY_SHIFT, _DENSITY_BASE)
