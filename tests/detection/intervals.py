"""Exact intervals of what was counted: of a share, by Clopper and Pearson, and of a rate, by Garwood.

The limits are the shares, or rates, at which as many hits or more, or as few or fewer, would come by chance once in
forty times: 95 % lie between. Where nothing was hit, or everything, one side has no limit but 0 or all.
https://en.wikipedia.org/wiki/Binomial_proportion_confidence_interval#Clopper%E2%80%93Pearson_interval
https://en.wikipedia.org/wiki/Poisson_distribution#Confidence_interval
"""

import math
from collections.abc import Callable
from typing import Final

#: The chance of being beyond either limit.
EITHER: Final = 0.025
#: Halvings of a bracket: to 1e-15 of it.
HALVINGS: Final = 50


def share(hits: int, of: int) -> tuple[float, float]:
    """The least and the largest share; `of` is 1 or more."""
    least = _root(lambda p: 1 - _at_most(hits - 1, of, p) - EITHER, 0.0, 1.0) if hits else 0.0
    most = _root(lambda p: EITHER - _at_most(hits, of, p), 0.0, 1.0) if hits < of else 1.0
    return least, most


def rate(hits: int, exposure: float) -> tuple[float, float]:
    """The least and the largest rate of events that were counted `hits` times in so much of whatever."""
    highest = hits + 10 * math.sqrt(hits + 1) + 10
    least = _root(lambda mean: 1 - _fewer(hits - 1, mean) - EITHER, 0.0, highest) if hits else 0.0
    return least / exposure, _root(lambda mean: EITHER - _fewer(hits, mean), 0.0, highest) / exposure


def _at_most(hits: int, of: int, p: float) -> float:
    """The chance of so many hits or fewer."""
    return math.fsum(math.comb(of, k) * p**k * (1 - p) ** (of - k) for k in range(hits + 1))


def _fewer(hits: int, mean: float) -> float:
    """The chance of so many events or fewer where `mean` are expected."""
    if mean == 0:
        return 1.0
    return math.fsum(math.exp(k * math.log(mean) - mean - math.lgamma(k + 1)) for k in range(hits + 1))


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    """Where a function that rises crosses 0."""
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if function(middle) > 0 else (middle, high)
    return (low + high) / 2
