"""What the log-probs of a batch are like before anything is made of them: finite, above 0, exactly 0, far too large."""

from typing import Any

import numpy as np
from numba import njit

from offpolicy_monitor.fused.bits import MAGNITUDE_BITS, finite, pattern
from offpolicy_monitor.fused.token import STRICT

_ZERO = np.float32(0)


@njit(**STRICT, nogil=True)
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


@njit(**STRICT, nogil=True)
def suspects(mu: Any, old: Any, pi: Any, certain: Any) -> Any:
    """(tokens with a log-prob that is not finite, with one above 0, with log mu of 0, and of the last those for which
    the trainer's, the first of old and pi that was sent, is below `certain`); columns [T], or empty if not sent."""
    nonfinite, positive, zero, filled = 0, 0, 0, 0
    for i in range(max(len(mu), len(old), len(pi))):
        odd, above = False, False
        for values in (mu, old, pi):
            if len(values):
                known = finite(values[i])
                odd |= not known
                above |= known and values[i] > _ZERO
        nonfinite += odd
        positive += above
        if len(mu) and mu[i] == _ZERO:
            zero += 1
            trainer = old if len(old) else pi
            filled += len(trainer) > 0 and trainer[i] < certain
    return nonfinite, positive, zero, filled
