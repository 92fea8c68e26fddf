"""Trends of one figure over steps: each a pure function of columns [n] -> [n], which at a step looks back alone.

NaN is a step without the figure; it is passed over, and a trend is NaN there and until it has seen enough.
"""

from typing import Final

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from offpolicy_monitor.alerts.history import Column
from offpolicy_monitor.pairs import Pairs

#: The baseline of a run: the median of its 5th to 25th step, when warm-up is over and drift has not begun.
BASELINE: Final = slice(5, 26)


def ewma(values: Column, span: int) -> Column:
    """Exponentially weighted mean of all values so far, with weights (1 - 2 / (span + 1))^age.

    The weights are divided by their sum, so that the first values do not count more than their age allows.
    """
    decay, known = 1 - 2 / (span + 1), ~np.isnan(values)
    means = np.full(len(values), np.nan)
    means[known] = _decayed(values[known], decay) / _decayed(np.ones(int(known.sum())), decay)
    return means


def _decayed(values: Column, decay: float) -> Column:
    """[n] the sum of all values so far with weights decay^age: of twice as many with each round."""
    sums, shift = values.copy(), 1
    while shift < len(sums):
        sums[shift:] += decay**shift * sums[:-shift]
        shift *= 2
    return sums


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
    known = ~np.isnan(values)
    before = np.concatenate([np.full(window, np.inf), values[known]])
    medians = np.full(int(known.sum()), np.nan)
    if len(medians):
        # In order, what is not there yet stands last, as infinity: the median is in the middle of what comes before it.
        ordered = np.sort(sliding_window_view(before, window)[: len(medians)], axis=1)
        seen = np.minimum(np.arange(len(medians)), window)
        rows = np.flatnonzero(seen >= least)
        low, high = ordered[rows, (seen[rows] - 1) // 2], ordered[rows, seen[rows] // 2]
        medians[rows] = (low + high) / 2
    found = np.full(len(values), np.nan)
    found[known] = medians
    return found


def median_of(values: Column, window: int, least: int = 3) -> Column:
    """The median of the last `window` values, this step's among them; NaN with fewer than `least`."""
    # What comes before the next step is what comes up to this one.
    known = np.flatnonzero(~np.isnan(values))
    found = np.full(len(values), np.nan)
    found[known] = median_before(np.append(values[known], 0.0), window, least)[1:]
    return found


def least_of(values: Column, window: int) -> Column:
    """The least of the last `window` steps' values; NaN where one of them lacks it, and before there are so many."""
    found = np.full(len(values), np.nan)
    if len(values) >= window:
        found[window - 1 :] = sliding_window_view(values, window).min(1)
    return found


def earlier(values: Column, steps: int) -> Column:
    """The value of so many steps ago; NaN before."""
    return np.concatenate([np.full(min(steps, len(values)), np.nan), values[: max(0, len(values) - steps)]])


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


def rise(values: Column, window: int) -> tuple[Column, Column]:
    """The least-squares line through the last `window` values: its rise over them relative to their mean, and its t.

    Both NaN before there are `window` values, and where these are all 0; t is slope over its standard error.
    """
    known = ~np.isnan(values)
    relative, certainty = (np.full(len(values), np.nan) for _ in range(2))
    if known.sum() < window:
        return relative, certainty
    windows = sliding_window_view(values[known], window)
    steps, means = np.arange(window) - (window - 1) / 2, windows.mean(1)
    apart, none = windows - means[:, None], np.zeros(len(windows))
    lines = Pairs(window, none, means, none + (steps**2).sum(), apart @ steps, (apart**2).sum(1))
    ends = np.flatnonzero(known)[window - 1 :]
    relative[ends] = over(lines.slope * (window - 1), means)
    certainty[ends] = lines.slope / np.maximum(lines.slope_error, 1e-300)
    return relative, certainty
