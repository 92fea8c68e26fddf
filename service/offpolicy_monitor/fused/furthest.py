"""The token at which two policies differ most in a sequence, of the few sequences that measure.worst asks about."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from offpolicy_monitor.fused.arrays import Floats
from offpolicy_monitor.fused.bits import MAGNITUDE_BITS, pattern
from offpolicy_monitor.fused.token import PASS, STRICT
from offpolicy_monitor.vocabulary import GAP_LOGPROBS

Array = NDArray[Any]

#: Tokens that are looked at one by one where the largest of them may be the largest so far.
_STRIP = 64


def furthest(columns: Mapping[str, Floats], gaps: Sequence[str], begins: Array, ends: Array) -> tuple[Array, Array]:
    """As measure.worst.furthest: the first token with the largest |d| of each gap in each sequence [G, C], and that
    |d|; 0 for none."""
    tokens, distances = np.empty((len(gaps), len(begins)), np.int64), np.empty((len(gaps), len(begins)))
    for gap, own, apart in zip(gaps, tokens, distances, strict=True):
        above, below = GAP_LOGPROBS[gap]
        find(columns[above], columns[below], begins, ends, own, apart)
    return tokens, distances


@njit(**PASS)
def find(a: Any, b: Any, begins: Any, ends: Any, tokens: Any, distances: Any) -> None:
    """The same of one gap; log-probs [T] float32, of which those that are not finite count for nothing."""
    for k in range(len(begins)):
        tokens[k], distances[k] = begins[k], 0.0
        least = np.int32(1)  # the bits of the largest |d| so far, as a float32
        for begin in range(begins[k], ends[k], _STRIP):
            end = min(begin + _STRIP, ends[k])
            if _largest(a[begin:end], b[begin:end]) < least:
                continue
            for t in range(begin, end):
                apart = abs(np.float64(a[t]) - np.float64(b[t]))
                if distances[k] < apart < np.inf:
                    tokens[k], distances[k] = t, apart
            least = max(least, pattern(np.float32(distances[k])))


@njit(**STRICT)
def _largest(a: Any, b: Any) -> Any:
    """The bits of the largest |d|, which compare as it does; what is not finite is larger than all."""
    most = np.int32(0)
    for i in range(len(a)):
        bits = pattern(a[i] - b[i]) & MAGNITUDE_BITS
        most = bits if bits > most else most
    return most
