"""What a batch is like before anything is made of it: log-probs that are not finite, above 0, exactly 0, far too large
or rounded, and the lengths of its sequences. In one call, since each costs more than looking at a small shard.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from offpolicy_monitor.fused.arrays import Integers
from offpolicy_monitor.fused.bits import MAGNITUDE_BITS, NOT_FINITE, pattern
from offpolicy_monitor.fused.decimals import multiples
from offpolicy_monitor.fused.token import PASS, SHORT, STRICT, WITHIN
from offpolicy_monitor.summary.tables.decimals import PLACES
from offpolicy_monitor.vocabulary import CERTAIN_LOGPROB

_ZERO, _CERTAIN = np.float32(0), np.float32(CERTAIN_LOGPROB)
_PLACES = len(PLACES)


class Inspected(NamedTuple):
    """What was found, by columns mu, old and pi.

    most      the largest magnitude of each, as the integer that the bits of a float32 are: these compare as magnitudes
              do, and what is not finite is the largest of all; 0 of what was not sent
    positive  whether some log-prob is above 0
    suspects  tokens with a log-prob that is not finite, with one above 0, with log mu of 0, and of the last those for
              which the trainer's, the first of old and pi that was sent, is below CERTAIN_LOGPROB
    decimals  [2, 1 + places] of mu and old: those looked at, and of them the multiples of each place; 0 unless asked
    lengths   sequences with a token, tokens of the longest, and how many are as long
    """

    most: tuple[int, int, int]
    positive: bool
    suspects: tuple[int, int, int, int]
    decimals: Integers
    lengths: tuple[int, int, int]


@njit(**PASS)
def inspect(mu: Any, old: Any, pi: Any, offsets: Any, decimals: Any) -> Any:
    """The fields of Inspected: of columns [T], or empty if not sent, and of sequences at offsets [S + 1]; `decimals`
    says whether to look for decimal places."""
    (least, most_of_mu, largest), of_old, of_pi = _extremes(mu), _extremes(old), _extremes(pi)
    most = np.int64(most_of_mu), np.int64(of_old[1]), np.int64(of_pi[1])
    least, largest = min(least, of_old[0], of_pi[0]), max(largest, of_old[2], of_pi[2])
    suspects = 0, 0, 0, 0
    if max(most) >= NOT_FINITE or largest > 0 or least == 0:
        suspects = _suspects(mu, old, pi)
    places = np.zeros((2, 1 + _PLACES), np.int64)
    if decimals:
        multiples(mu, places[0])
        multiples(old, places[1])
    return most, largest > 0, suspects, places, _lengths(offsets)


@njit(**SHORT)
def inspect_short(mu: Any, old: Any, pi: Any, offsets: Any, decimals: Any) -> Any:
    """`inspect` of a short batch."""
    return inspect(mu, old, pi, offsets, decimals)


@njit(**WITHIN)
def _lengths(offsets: Any) -> Any:
    filled, longest, number = 0, 0, 0
    for s in range(len(offsets) - 1):
        n = offsets[s + 1] - offsets[s]
        filled += n > 0
        number = 1 if n > longest else number + (n == longest)
        longest = max(n, longest)
    return filled, longest, number


@njit(**STRICT)
def _extremes(values: Any) -> Any:
    """Least magnitude, largest magnitude, and largest."""
    least, most, largest = np.int32(0x7FFFFFFF), np.int32(0), np.int32(-0x80000000)
    for i in range(len(values)):
        bits = pattern(values[i])
        magnitude = bits & MAGNITUDE_BITS
        least = magnitude if magnitude < least else least
        most = magnitude if magnitude > most else most
        largest = bits if bits > largest else largest
    return least, most, largest


@njit(**STRICT)
def _suspects(mu: Any, old: Any, pi: Any) -> Any:
    trainer = old if len(old) else pi
    other = mu if len(mu) else trainer
    nonfinite, positive = _odd(other, trainer if len(trainer) else other, pi if len(pi) else other)
    zero, filled = _zeros(mu, trainer if len(trainer) else mu)
    return np.int64(nonfinite), np.int64(positive), np.int64(zero), np.int64(filled)


@njit(**STRICT)
def _odd(a: Any, b: Any, c: Any) -> Any:
    """Tokens with a value that is not finite, and with a finite one above 0: bits compare as magnitudes do."""
    nonfinite, positive = np.int32(0), np.int32(0)
    for i in range(len(a)):
        x, y, z = pattern(a[i]), pattern(b[i]), pattern(c[i])
        most = max(x & MAGNITUDE_BITS, y & MAGNITUDE_BITS, z & MAGNITUDE_BITS)
        nonfinite += np.int32(most >= NOT_FINITE)
        above = ((x > 0) & (x < NOT_FINITE)) | ((y > 0) & (y < NOT_FINITE)) | ((z > 0) & (z < NOT_FINITE))
        positive += np.int32(above)
    return nonfinite, positive


@njit(**STRICT)
def _zeros(mu: Any, trainer: Any) -> Any:
    """Tokens with log mu of 0, and those of them for which the trainer's log-prob is below _CERTAIN."""
    zero, filled = np.int32(0), np.int32(0)
    for i in range(len(mu)):
        on = mu[i] == _ZERO
        zero += np.int32(on)
        filled += np.int32(on & (trainer[i] < _CERTAIN))
    return zero, filled
