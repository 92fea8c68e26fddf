"""Named figures that merge: each one is a sum, a minimum or a maximum.

The smallest monoid of the summary. A figure that is missing is the identity of its reduction, so an empty record is
`{}` and merging needs no special case. It knows nothing of what the figures mean.
"""

from collections.abc import Callable, Mapping
from operator import add
from typing import Final

from offpolicy_monitor.summary.rows import Merge

Sums = Mapping[str, float]

#: A merge adds up its shards: 1e18 sums of this size, more than there can be, still fit a 64-bit float.
LARGEST_SUM: Final = 1e290
#: The same for counts, which are stored in 64 bits: 65,536 shards, each with more than any batch has.
LARGEST_COUNT: Final = 1 << 47

_MERGE: Final[Mapping[Merge, Callable[[float, float], float]]] = {"sum": add, "min": min, "max": max, "deviation": add}


def merge_sums(reductions: Mapping[str, Merge], left: Sums, right: Sums) -> dict[str, float]:
    """Merge two records figure by figure; a KeyError names a figure that `reductions` does not know."""
    merged = dict(left)
    for name, value in right.items():
        reduce = _MERGE[reductions[name]]
        merged[name] = reduce(merged[name], value) if name in merged else value
    return merged


def over(value: float, error: float) -> float:
    """`value / error`, a z-score; 0 where there is no error to measure by."""
    return value / error if error > 0 else 0.0


def fraction(part: float, whole: float) -> float | None:
    """`part / whole`, or None where the whole is empty."""
    return part / whole if whole else None
