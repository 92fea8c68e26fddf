"""Named figures that merge: each one is a sum, a minimum or a maximum.

The smallest monoid of the summary. A figure that is missing is the identity of its reduction, so an empty record is
`{}` and merging needs no special case. It knows nothing of what the figures mean.
"""

from collections.abc import Callable, Mapping
from operator import add
from typing import Final, Literal

Reduction = Literal["sum", "min", "max"]
Sums = Mapping[str, float]

_MERGE: Final[Mapping[Reduction, Callable[[float, float], float]]] = {"sum": add, "min": min, "max": max}


def merge_sums(reductions: Mapping[str, Reduction], left: Sums, right: Sums) -> dict[str, float]:
    """Merge two records figure by figure; a KeyError names a figure that `reductions` does not know."""
    merged = dict(left)
    for name, value in right.items():
        reduce = _MERGE[reductions[name]]
        merged[name] = reduce(merged[name], value) if name in merged else value
    return merged


def fraction(part: float, whole: float) -> float | None:
    """`part / whole`, or None where the whole is empty."""
    return part / whole if whole else None
