"""Sums by name as figures are read off them, and how they are divided. It knows nothing of what the figures mean."""

from collections.abc import Mapping
from typing import Final

Sums = Mapping[str, float]

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
