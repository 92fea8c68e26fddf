"""What the log-probs of a batch are like before anything is made of them: finite, above 0, exactly 0, far too large."""

from typing import Any

import numpy as np
from numba import njit

from offpolicy_monitor.fused.bits import MAGNITUDE_BITS, NOT_FINITE, pattern
from offpolicy_monitor.fused.token import ENTRY, STRICT

_ZERO = np.float32(0)


@njit(**STRICT | ENTRY)
def extremes(values: Any) -> Any:
    """(least magnitude, largest magnitude, largest) of float32 numbers as the integers that their bits are.

    Bits compare as magnitudes do, and what is not finite is the largest of all.
    """
    least, most, largest = np.int32(0x7FFFFFFF), np.int32(0), np.int32(-0x80000000)
    for i in range(len(values)):
        bits = pattern(values[i])
        magnitude = bits & MAGNITUDE_BITS
        least = magnitude if magnitude < least else least
        most = magnitude if magnitude > most else most
        largest = bits if bits > largest else largest
    return least, most, largest


@njit(**STRICT | ENTRY)
def suspects(mu: Any, old: Any, pi: Any, certain: Any) -> Any:
    """(tokens with a log-prob that is not finite, with one above 0, with log mu of 0, and of the last those for which
    the trainer's, the first of old and pi that was sent, is below `certain`); columns [T], or empty if not sent."""
    trainer = old if len(old) else pi
    other = mu if len(mu) else trainer
    nonfinite, positive = _odd(other, trainer if len(trainer) else other, pi if len(pi) else other)
    zero, filled = _zeros(mu, trainer if len(trainer) else mu, certain)
    return nonfinite, positive, zero, filled


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
def _zeros(mu: Any, trainer: Any, certain: Any) -> Any:
    """Tokens with log mu of 0, and those of them for which the trainer's log-prob is below `certain`."""
    zero, filled = np.int32(0), np.int32(0)
    for i in range(len(mu)):
        on = mu[i] == _ZERO
        zero += np.int32(on)
        filled += np.int32(on & (trainer[i] < certain))
    return zero, filled
