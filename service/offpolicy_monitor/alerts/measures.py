"""What rules compare: builders of measures, each a function of a run's history and terms that gives one number a step.

Pure; thresholds are the rules' business. Shapes: n steps.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from offpolicy_monitor.alerts import trends
from offpolicy_monitor.alerts.breaches import active, ever, lengths
from offpolicy_monitor.alerts.history import Column, History
from offpolicy_monitor.alerts.rule import Measure, Rule, Terms

#: A line through 50 steps with |t| beyond this would come by chance once in 200 times on each side (t of 48 degrees).
SIGNIFICANT: Final = 2.7
#: Below this k3 engine and trainer agree as well as float32 allows; growth below it means nothing.
NO_MISMATCH: Final = 1e-5


def figure(path: str) -> Measure:
    """The figure itself."""
    return lambda history, terms: history.column(path)


def magnitude(path: str) -> Measure:
    """The figure without its sign."""
    return lambda history, terms: np.abs(history.column(path))


def drop_from_baseline(path: str) -> Measure:
    """How far the figure is below the run's baseline, in its own unit."""
    return lambda history, terms: trends.baseline(history.column(path)) - history.column(path)


def drift_from_baseline(path: str, least: float) -> Measure:
    """The median of the last 7 steps over the run's baseline; 0 while the median is below `least`.

    A baseline below NO_MISMATCH counts as that.
    """

    def measure(history: History, terms: Terms) -> Column:
        now = trends.median_of(history.column(path), 7)
        ratio = trends.over(now, np.maximum(trends.baseline(history.column(path)), NO_MISMATCH))
        return np.where(now < least, 0 * ratio, ratio)

    return measure


def surge(path: str) -> Measure:
    """EWMA over 10 steps over EWMA over 200."""
    return lambda history, terms: trends.over(
        trends.ewma(history.column(path), 10), trends.ewma(history.column(path), 200)
    )


def spikes(path: str, least: float, times: float, window: int) -> Measure:
    """How many of the last `window` steps were above `least` and above `times` the median of the 50 before them."""

    def measure(history: History, terms: Terms) -> Column:
        values = history.column(path)
        high = (values > least) & (values > times * trends.median_before(values, 50))
        return trends.count_within(np.where(np.isnan(values), np.nan, high), window)

    return measure


def miscalibration(gap: str) -> Measure:
    """|mean r - 1|, 0 where it is within five standard errors of 1: var r = 1 + chi2 - (mean r)^2 over the tokens."""

    def measure(history: History, terms: Terms) -> Column:
        ratio, chi2, tokens = (history.column(f"gaps.{gap}.{name}") for name in ("ratio_mean", "chi2", "tokens"))
        error = np.sqrt(np.maximum(1 + chi2 - ratio**2, 0) / tokens)
        return np.where(np.abs(ratio - 1) > 5 * error, np.abs(ratio - 1), 0 * ratio)

    return measure


def share_of_several(path: str, units: str, least: int) -> Measure:
    """The share, 0 where it is fewer than `least` of the units: one of sixteen is a share, and may be chance."""

    def measure(history: History, terms: Terms) -> Column:
        values = history.column(path)
        return np.where(values * history.column(units) > least - 0.5, values, 0 * values)

    return measure


def entropy_drop(path: str, low: float, gone: float) -> Measure:
    """How far entropy fell, relative to 50 steps ago, where it is below `low` nats: from there it may be lost.

    1 where it is below `gone` nats and half the run's baseline.
    """

    def measure(history: History, terms: Terms) -> Column:
        values = history.column(path)
        fall = np.where(values < low, np.nan_to_num(-trends.change_over(values, 50)), 0.0)
        lost = (values < gone) & (values < trends.baseline(values) / 2)
        return np.where(lost, 1.0, np.where(np.isnan(values), np.nan, fall))

    return measure


def larger(first: str, second: str) -> Measure:
    """The larger of two figures; one where the other is not there."""
    return lambda history, terms: np.fmax(history.column(first), history.column(second))


def blindness(mask_rate: str, drift: str) -> Measure:
    """How far a mask rate fell while a drift rose, over 50 steps: the smaller relative change, 0 unless both are sure.

    Relative to the means of the 50 steps; sure is a slope whose t is beyond SIGNIFICANT.
    """

    def measure(history: History, terms: Terms) -> Column:
        fall, fall_t = trends.rise(history.column(mask_rate), 50)
        growth, growth_t = trends.rise(history.column(drift), 50)
        sure = (fall_t < -SIGNIFICANT) & (growth_t > SIGNIFICANT)
        return np.where(np.isnan(fall) | np.isnan(growth), np.nan, np.where(sure, np.minimum(-fall, growth), 0.0))

    return measure


def length_bias(longest: str, shortest: str, points: float) -> Measure:
    """Odds of being masked in the longest quarter over those in the shortest; 0 unless `points` lie between the rates.

    Odds, rate / (1 - rate), are the rates where these are small, and still tell them apart where both are large. Those
    of the shortest quarter count as at least one in a thousand.
    """

    def measure(history: History, terms: Terms) -> Column:
        high, low = history.column(longest), history.column(shortest)
        odds = high * (1 - low) / np.maximum(low * (1 - high), 1e-3)
        return np.where(high - low > points, odds, 0 * high * low)

    return measure


def jump_at_sync(version: str, k3: str, spread: str) -> Measure:
    """The least k3 of a step whose policy version was new and of the two after it, over the median of the 10 before.

    0 at other steps, and unless mean |d| rose by 1.7 times and stayed there as well, which is what a k3 of three times
    means where all tokens have moved: a single token may triple k3. NaN with fewer than 5 steps before.
    """

    def measure(history: History, terms: Terms) -> Column:
        values, spreads = history.column(k3), history.column(spread)
        new = trends.earlier(np.diff(history.column(version), prepend=np.nan), 2)
        before = trends.earlier(trends.median_before(values, 10, least=5), 2)
        before_spread = trends.earlier(trends.median_before(spreads, 10, least=5), 2)
        moved = trends.least_of(spreads, 3) > 1.7 * before_spread
        jump = trends.least_of(values, 3) / np.maximum(before, NO_MISMATCH)
        return np.where(np.isnan(jump) | np.isnan(new), np.nan, np.where((new != 0) & moved, jump, 0.0))

    return measure


def bad_share(parts: Sequence[tuple[str, str]], identical: str) -> Measure:
    """The largest share of bad data: each (count, of how many); and 1 where every mismatch is exactly 0.

    The latter is what the bitwise profile is for, and counts for nothing there.
    """

    def measure(history: History, terms: Terms) -> Column:
        shares = [trends.over(history.column(count), history.column(whole)) for count, whole in parts]
        if terms.profile != "bitwise":
            exact = history.column(identical)
            shares.append(np.where(np.isnan(exact), np.nan, exact == 1.0))
        return np.asarray(np.fmax.reduce(shares))

    return measure


def dominates(share: str, threshold: float, breaching: Sequence[Rule]) -> Measure:
    """A component's share of the total second moment at steps where one of the rules is beyond its warning; else 0."""

    def measure(history: History, terms: Terms) -> Column:
        off = np.zeros(len(history.steps), np.bool_)
        for rule in breaching:
            if ever(rule, "warning", history, terms):
                off |= lengths(rule, "warning", history, terms) > 0
        values = history.column(share)
        return np.where(np.isnan(values), np.nan, np.where(off & (values > threshold), values, 0.0))

    return measure


def together(rules: Sequence[Rule], window: int) -> Measure:
    """How many of the rules were active, at warning or worse, within the last `window` steps."""

    def measure(history: History, terms: Terms) -> Column:
        found = np.zeros(len(history.steps))
        for rule in rules:
            breached = [severity for severity in rule.severities if ever(rule, severity, history, terms)]
            if breached and terms.enabled(rule.name):
                flags = np.any([active(rule, severity, history, terms) for severity in breached], axis=0)
                found += trends.count_within(flags.astype(np.float64), window) > 0
        return found

    return measure
