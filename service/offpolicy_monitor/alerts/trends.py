"""Trends of one figure over steps: each a pure function of columns [n] -> [n], which at a step looks back alone.

NaN is a step without the figure; it is passed over, and a trend is NaN there and until it has seen enough.
"""

from typing import Final

import numpy as np

from offpolicy_monitor.alerts.history import Column

#: The baseline of a run: the median of its 5th to 25th step, when warm-up is over and drift has not begun.
BASELINE: Final = slice(5, 26)


def ewma(values: Column, span: int) -> Column:
    """Exponentially weighted mean, m += (2 / (span + 1)) (x - m), from the first value on."""
    weight, mean = 2 / (span + 1), np.nan
    means = np.full(len(values), np.nan)
    for place, value in enumerate(values.tolist()):
        if np.isnan(value):
            continue
        mean = value if np.isnan(mean) else mean + weight * (value - mean)
        means[place] = mean
    return means


def baseline(values: Column) -> Column:
    """The median of the figure's values at the run's 5th to 25th step, at every step after them."""
    known = values[BASELINE]
    known = known[~np.isnan(known)]
    level = np.full(len(values), np.nan)
    if len(known):
        level[BASELINE.stop :] = np.median(known)
    return level


def median_before(values: Column, window: int, least: int = 10) -> Column:
    """The median of the last `window` values before a step; NaN with fewer than `least` of them."""
    medians = np.full(len(values), np.nan)
    for place in range(len(values)):
        known = values[max(0, place - window) : place]
        known = known[~np.isnan(known)]
        if len(known) >= least:
            medians[place] = np.median(known)
    return medians


def change_over(values: Column, window: int) -> Column:
    """The relative change against the median of ten steps that ended `window` steps ago: -0.5 is down by half."""
    medians = median_before(values, 10, least=5)
    before = np.full(len(values), np.nan)
    before[window:] = medians[: max(0, len(values) - window)]
    return over(values, before) - 1


def over(values: Column, reference: Column) -> Column:
    """values / reference; NaN where the reference is not above 0."""
    ratio = np.full(len(values), np.nan)
    np.divide(values, reference, out=ratio, where=reference > 0)
    return ratio


def count_within(hits: Column, window: int) -> Column:
    """The sum of the last `window` steps' hits (0 or 1), this one included; NaN where this step has none."""
    sums = np.nan_to_num(hits).cumsum()
    before = np.concatenate([np.zeros(window), sums])[: len(sums)]
    return np.where(np.isnan(hits), np.nan, sums - before)
