"""Sums by name as figures are read off them, and how they are divided. It knows nothing of what the figures mean."""

import math
from collections.abc import Mapping
from typing import Any, Final

Sums = Mapping[str, float]

#: Beyond the sums of any batch that is taken, and small enough to be squared; for sums of products, which are not
#: squared again, LARGEST_SUM.
LARGEST_NUMBER: Final = 1e150
#: A merge adds up its shards: 1e18 sums of this size, more than there can be, still fit a 64-bit float.
LARGEST_SUM: Final = 1e290
#: The same for counts, which are stored in 64 bits: 65,536 shards, each with more than any batch has.
LARGEST_COUNT: Final = 1 << 47


def over(value: float, error: float) -> float:
    """`value / error`, a z-score; 0 where there is no error to measure by."""
    return value / error if error > 0 else 0.0


def fraction(part: float, whole: float) -> float | None:
    """`part / whole`, or None where the whole is empty."""
    return part / whole if whole else None


def finite(value: Any) -> Any:
    """The same JSON value with None for every number that JSON cannot hold."""
    if isinstance(value, dict):
        # Most are numbers: a call for each would take longer than the rest.
        return {
            key: item if type(item) is float and item - item == 0.0 else finite(item) for key, item in value.items()
        }
    if isinstance(value, list):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
