"""How many log-probs are decimal: summary.tables.decimals in one reading of the column, instead of ten."""

from typing import Any, Final

import numpy as np
from numba import njit

from offpolicy_monitor.fused.token import STRICT, WITHIN
from offpolicy_monitor.summary.tables.decimals import HIGHEST, LOWEST, NEAR, PLACES

#: Log-probs that are looked at one by one where one of them is a multiple of the smallest place.
_STRIP = 64
_LEAST, _BOUND = np.float32(LOWEST), np.float32(HIGHEST)
#: The smallest place first, as powers of ten.
_POWERS: Final = tuple(10.0**place for place in reversed(PLACES))


@njit(**WITHIN)
def multiples(values: Any, found: Any) -> None:
    """Of log-probs [T] float32 add to found [1 + places] those looked at, and of them the multiples of each place."""
    for begin in range(0, len(values), _STRIP):
        strip = values[begin : begin + _STRIP]
        looked_at, smallest = _in_strip(strip)
        found[0] += looked_at
        if smallest:
            _by_place(strip, found)


@njit(**STRICT)
def _in_strip(values: Any) -> Any:
    """How many are looked at, and how many of them are multiples of the smallest place."""
    looked_at, smallest = np.int32(0), np.int32(0)
    for i in range(len(values)):
        inside = (values[i] >= _LEAST) & (values[i] < _BOUND)
        scaled = np.float64(values[i]) * _POWERS[0]
        near = abs(scaled - np.rint(scaled)) < NEAR
        looked_at += np.int32(inside)
        smallest += np.int32(inside & near)
    return looked_at, smallest


@njit(**STRICT)
def _by_place(values: Any, found: Any) -> None:
    """Add the multiples of each place; what is no multiple of one is none of a larger one either."""
    for i in range(len(values)):
        if (values[i] >= _LEAST) & (values[i] < _BOUND):
            for k in range(len(_POWERS)):
                scaled = np.float64(values[i]) * _POWERS[k]
                if not abs(scaled - np.rint(scaled)) < NEAR:
                    break
                found[len(_POWERS) - k] += 1
