"""Pairs of numbers: the least-squares line through them, its errors, and Pearson's correlation, from second moments;
and whether values grow in their order, from their ranks alone.

Plain arithmetic, the same for one set of pairs (floats) and for many at once (numpy arrays of them). Formulas:
https://en.wikipedia.org/wiki/Simple_linear_regression
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
T = TypeVar("T", float, Floats)

#: What a line is taken to leave at least, of sum (y - mean y)^2: less is rounding.
LEAST_LEFT: Final = 1e-12


@dataclass(frozen=True)
class Pairs(Generic[T]):
    """`count` pairs (x, y) by their means and their sums of (x - mean x)^2, (x - mean x)(y - mean y), (y - mean y)^2.

    Without spread in x (xx = 0) there is no line, and without yy no error and no correlation.
    """

    count: T | float
    x: T
    y: T
    xx: T
    xy: T
    yy: T

    @property
    def slope(self) -> T:
        """Of the line y = intercept + slope * x that leaves the least squares."""
        return self.xy / self.xx

    @property
    def intercept(self) -> T:
        """The line at x = 0."""
        return self.y - self.slope * self.x

    @property
    def slope_error(self) -> T:
        """The standard error of the slope, from what the line leaves; for three pairs and more."""
        left = abs(self.yy - self.xy * self.slope) + LEAST_LEFT * self.yy
        return _root(cast(T, left / (self.count - 2) / self.xx))

    @property
    def chance_error(self) -> T:
        """The standard deviation that the slope has by chance, if y has nothing to do with x."""
        return _root(self.yy / self.count / self.xx)

    @property
    def share(self) -> T:
        """The part of mean y that goes with x: slope * mean x / mean y."""
        return self.slope * self.x / self.y


def _root(value: T) -> T:
    root: T = value**0.5
    return root


def of_sums(count: T | float, x: T, y: T, xx: T, xy: T, yy: T | float = math.nan) -> Pairs[T]:
    """Pairs from the sums of x, y, x^2, x y and y^2 over them."""
    return Pairs(count, x / count, y / count, xx - x * x / count, xy - x * y / count, yy - y * y / count)


def of_points(points: Iterable[tuple[float, float, float]], yy: float = math.nan) -> Pairs[float]:
    """Pairs in groups of one x each: (how many, their x, the sum of their y). `yy` is that of the pairs themselves."""
    groups = list(points)
    count = sum(many for many, _, _ in groups)
    x = sum(many * value for many, value, _ in groups) / count
    y = sum(total for _, _, total in groups) / count
    xx = sum(many * (value - x) ** 2 for many, value, _ in groups)
    xy = sum((value - x) * (total - many * y) for many, value, total in groups)
    return Pairs(count, x, y, xx, xy, yy)


def correlations(
    xx: Floats, xy: Floats, yy: Floats, least_xx: Floats | float = 0.0, least_yy: Floats | float = 0.0
) -> Floats:
    """Pearson's correlation of each, within -1 and 1; NaN where xx or yy is no more than its least, or rounding.

    Divides as it stands: whoever has pairs without spread lets numpy not warn.
    """
    # One after the other: the product of two small spreads is no float64 number.
    found = xy / np.sqrt(xx) / np.sqrt(yy)
    varies = (xx > least_xx) & (yy > least_yy)
    return np.where(varies, np.minimum(np.maximum(found, -1.0), 1.0), np.nan)


def correlation(pairs: Pairs[float], least_xx: float = 0.0, least_yy: float = 0.0) -> float | None:
    """The same of one set of pairs, None for NaN."""
    with np.errstate(divide="ignore", invalid="ignore"):
        xx, xy, yy = (cast(Floats, moment) for moment in (pairs.xx, pairs.xy, pairs.yy))
        found = float(correlations(xx, xy, yy, least_xx, least_yy))
    return None if math.isnan(found) else found


def kendall_z(values: Sequence[float]) -> float:
    """z of Mann and Kendall's test: pairs that rise less those that fall, over its deviation where order is by chance.

    For two values and more. https://en.wikipedia.org/wiki/Kendall_rank_correlation_coefficient#Hypothesis_test
    """
    count = len(values)
    rising = sum((later > now) - (later < now) for at, now in enumerate(values) for later in values[at + 1 :])
    return rising / math.sqrt(count * (count - 1) * (2 * count + 5) / 18)
