"""Trends of one figure over steps: each a function of its column [n] and an index, which looks back from there alone.

NaN is a step without the figure; it is passed over, and a trend is NaN there and until it has seen enough.
"""

import math
from collections.abc import Iterable
from functools import cache
from operator import mul
from statistics import median
from typing import Any, Final

import numpy as np

from offpolicy_monitor.alerts.history import Column
from offpolicy_monitor.pairs import Pairs

#: The baseline of a run: the median of its 5th to 25th step, when warm-up is over and drift has not begun.
BASELINE: Final = slice(5, 26)
#: From this age on a value counts for nothing in a mean over 200 steps, whose weight is 1e-18 there.
OLDEST: Final = 4096


def known(values: Column, end: int, most: int) -> list[float]:
    """The last `most` values there are before index `end`, in order."""
    if end <= 0:
        return []
    found = [value for value in values[max(0, end - most) : end] if value == value]
    if len(found) < most < end:
        found = [value for value in values[:end] if value == value][-most:]
    return found


def ewma(values: Column, index: int, *spans: int) -> list[float]:
    """Exponentially weighted means of all values so far, one per span, with weights (1 - 2 / (span + 1))^age.

    The weights are divided by their sum, so that the first values do not count more than their age allows.
    """
    if math.isnan(values[index]):
        return [math.nan] * len(spans)
    lately = np.asarray(values[max(0, index + 1 - OLDEST) : index + 1])
    # One value that is not there makes the sum of squares NaN.
    if not lately @ lately >= 0:
        lately = np.asarray(values[: index + 1])
        lately = lately[lately == lately][-OLDEST:]
    newest_first = lately[::-1]
    ages = len(newest_first)
    return [float(newest_first @ weights[:ages] / sums[ages - 1]) for weights, sums in map(_weights, spans)]


@cache
def _weights(span: int) -> Any:
    """[OLDEST] float64 by age, and their sums up to each age."""
    weights = (1 - 2 / (span + 1)) ** np.arange(OLDEST)
    return weights, weights.cumsum()


def baseline(values: Column, index: int) -> float:
    """The median of the figure's values at the run's 5th to 25th step, at every step after them."""
    level = [value for value in values[BASELINE] if value == value] if index >= BASELINE.stop else []
    return median(level) if level else math.nan


def median_before(values: Column, index: int, window: int, least: int = 10) -> float:
    """The median of the last `window` values before a step; NaN with fewer than `least` of them."""
    if index < 0 or math.isnan(values[index]):
        return math.nan
    before = known(values, index, window)
    return median(before) if len(before) >= least else math.nan


def median_of(values: Column, index: int, window: int, least: int = 3) -> float:
    """The median of the last `window` values, this step's among them; NaN with fewer than `least`."""
    lately = known(values, index + 1, window)
    return median(lately) if len(lately) >= least and not math.isnan(values[index]) else math.nan


def least_of(values: Column, index: int, window: int) -> float:
    """The least of the last `window` steps' values; NaN where one of them lacks it, and before there are so many."""
    lately = values[max(0, index + 1 - window) : index + 1]
    return math.nan if len(lately) < window or any(map(math.isnan, lately)) else min(lately)


def change(values: Column, index: int) -> float:
    """How much more a value is than that of the step before; NaN where one of them is not there."""
    return values[index] - values[index - 1] if index > 0 else math.nan


def rises(values: Column, indices: Iterable[int]) -> list[int]:
    """Those of the indices whose value is above that of the step before."""
    return [index for index in indices if change(values, index) > 0]


def change_over(values: Column, index: int, window: int) -> float:
    """The relative change against the median of ten steps that ended `window` steps ago: -0.5 is down by half."""
    return over(values[index], median_before(values, index - window, 10, least=5)) - 1


def over(value: float, reference: float) -> float:
    """value / reference; NaN where the reference is not above 0."""
    return value / reference if reference > 0 else math.nan


def rise(values: Column, index: int, window: int) -> tuple[float, float]:
    """The least-squares line through the last `window` values: its rise over them relative to their mean, and its t.

    Both NaN where there is no line; t is slope over its standard error.
    """
    lately, mean = whole_window(values, index, window)
    if not lately:
        return math.nan, math.nan
    steps, square = _steps(window)
    apart = [value - mean for value in lately]
    line = Pairs(window, 0.0, mean, square, _product(apart, steps), _product(apart, apart))
    return line.slope * (window - 1) / mean, line.slope / max(line.slope_error, 1e-300)


def whole_window(values: Column, index: int, window: int) -> tuple[list[float], float]:
    """The last `window` values and their mean; none before there are so many, and where their mean is not above 0."""
    lately = known(values, index + 1, window)
    if len(lately) < window or math.isnan(values[index]):
        return [], math.nan
    mean = sum(lately) / window
    return (lately, mean) if mean > 0 else ([], math.nan)


@cache
def _steps(window: int) -> tuple[list[float], float]:
    """[window], of mean 0, and the sum of their squares."""
    steps = [step - (window - 1) / 2 for step in range(window)]
    return steps, _product(steps, steps)


def _product(left: list[float], right: list[float]) -> float:
    return float(sum(map(mul, left, right)))
