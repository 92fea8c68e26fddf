"""What rules compare: builders of measures, each a function of a run's history, its terms and a step's index.

It gives one number for that step, of it and of what came before; NaN where there is nothing to say. Pure; thresholds
are the rules' business.
"""

import math
from collections.abc import Sequence
from typing import Final

from offpolicy_monitor.alerts import trends
from offpolicy_monitor.alerts.breaches import active, value_at
from offpolicy_monitor.alerts.history import Column, History
from offpolicy_monitor.alerts.rule import Measure, Rule, Terms

#: A line through 50 steps with |t| beyond this would come by chance once in 200 times on each side (t of 48 degrees).
SIGNIFICANT: Final = 2.7
#: Below this k3 engine and trainer agree as well as float32 allows; growth below it means nothing.
NO_MISMATCH: Final = 1e-5


def figure(path: str) -> Measure:
    """The figure itself."""
    return lambda history, terms, index: history.value(path, index)


def magnitude(path: str) -> Measure:
    """The figure without its sign."""
    return lambda history, terms, index: abs(history.value(path, index))


def drop_from_baseline(path: str) -> Measure:
    """How far the figure is below the run's baseline, in its own unit."""
    return lambda history, terms, index: trends.baseline(history.column(path), index) - history.value(path, index)


def drift_from_baseline(path: str, least: float) -> Measure:
    """The median of the last 7 steps over the run's baseline; 0 while the median is below `least`.

    A baseline below NO_MISMATCH counts as that.
    """

    def measure(history: History, terms: Terms, index: int) -> float:
        values = history.column(path)
        now, level = trends.median_of(values, index, 7), trends.baseline(values, index)
        if math.isnan(now) or math.isnan(level):
            return math.nan
        return now / max(level, NO_MISMATCH) if now >= least else 0.0

    return measure


def surge(path: str) -> Measure:
    """EWMA over 10 steps over EWMA over 200."""
    return lambda history, terms, index: trends.over(*trends.ewma(history.column(path), index, 10, 200))


def spikes(path: str, least: float, times: float, window: int) -> Measure:
    """How many of the last `window` steps were above `least` and above `times` the median of the 50 before them."""

    def is_spike(values: Column, index: int) -> bool:
        return values[index] > least and values[index] > times * trends.median_before(values, index, 50)

    def measure(history: History, terms: Terms, index: int) -> float:
        values = history.column(path)
        if math.isnan(values[index]):
            return math.nan
        return float(sum(is_spike(values, number) for number in range(max(0, index + 1 - window), index + 1)))

    return measure


def miscalibration(gap: str) -> Measure:
    """|mean r - 1|, 0 where it is within five standard errors of 1: var r = 1 + chi2 - (mean r)^2 over the tokens."""

    def measure(history: History, terms: Terms, index: int) -> float:
        ratio, chi2, tokens = (history.value(f"gaps.{gap}.{name}", index) for name in ("ratio_mean", "chi2", "tokens"))
        if math.isnan(ratio):
            return math.nan
        variance = 1 + chi2 - ratio**2
        # Without tokens, or without chi2, there is no error to be beyond.
        beyond = tokens > 0 and abs(ratio - 1) > 5 * math.sqrt((variance if not variance < 0 else 0.0) / tokens)
        return abs(ratio - 1) if beyond else 0.0

    return measure


def share_of_several(path: str, units: str, least: int) -> Measure:
    """The share, 0 where it is fewer than `least` of the units: one of sixteen is a share, and may be chance."""

    def measure(history: History, terms: Terms, index: int) -> float:
        value = history.value(path, index)
        return value if value * history.value(units, index) > least - 0.5 else 0 * value

    return measure


def entropy_drop(path: str, low: float, gone: float) -> Measure:
    """How far entropy fell, relative to 50 steps ago, where it is below `low` nats: from there it may be lost.

    1 where it is below `gone` nats and half the run's baseline.
    """

    def measure(history: History, terms: Terms, index: int) -> float:
        values = history.column(path)
        value = values[index]
        if value < gone and value < trends.baseline(values, index) / 2:
            return 1.0
        fall = -trends.change_over(values, index, 50) if value < low else 0 * value
        return 0.0 if math.isnan(fall) and not math.isnan(value) else fall

    return measure


def larger(first: str, second: str) -> Measure:
    """The larger of two figures; one where the other is not there."""
    return lambda history, terms, index: _largest([history.value(first, index), history.value(second, index)])


def blindness(mask_rate: str, drift: str) -> Measure:
    """How far a mask rate fell while a drift rose, over 50 steps: the smaller relative change, 0 unless both are sure.

    Relative to the means of the 50 steps; sure is a slope whose t is beyond SIGNIFICANT.
    """

    def measure(history: History, terms: Terms, index: int) -> float:
        fall, fall_t = trends.rise(history.column(mask_rate), index, 50)
        growth, growth_t = trends.rise(history.column(drift), index, 50)
        if math.isnan(fall) or math.isnan(growth):
            return math.nan
        return min(-fall, growth) if fall_t < -SIGNIFICANT and growth_t > SIGNIFICANT else 0.0

    return measure


def length_bias(longest: str, shortest: str, points: float) -> Measure:
    """Odds of being masked in the longest quarter over those in the shortest; 0 unless `points` lie between the rates.

    Odds, rate / (1 - rate), are the rates where these are small, and still tell them apart where both are large. Those
    of the shortest quarter count as at least one in a thousand.
    """

    def measure(history: History, terms: Terms, index: int) -> float:
        high, low = history.value(longest, index), history.value(shortest, index)
        if not high - low > points:
            return 0 * high * low
        return high * (1 - low) / max(low * (1 - high), 1e-3)

    return measure


def jump_at_sync(version: str, k3: str, spread: str) -> Measure:
    """The least k3 of a step whose policy version was new and of the two after it, over the median of the 10 before.

    0 at other steps, and unless mean |d| rose by 1.7 times and stayed there as well, which is what a k3 of three times
    means where all tokens have moved: a single token may triple k3. NaN with fewer than 5 steps before.
    """

    def measure(history: History, terms: Terms, index: int) -> float:
        values, spreads, began = history.column(k3), history.column(spread), index - 2
        new = trends.change(history.column(version), began)
        before, least = trends.median_before(values, began, 10, least=5), trends.least_of(values, index, 3)
        if any(map(math.isnan, (new, before, least))):
            return math.nan
        if new == 0:
            return 0.0
        moved = trends.least_of(spreads, index, 3) > 1.7 * trends.median_before(spreads, began, 10, least=5)
        return least / max(before, NO_MISMATCH) if moved else 0.0

    return measure


def bad_share(parts: Sequence[tuple[str, str]], identical: str) -> Measure:
    """The largest share of bad data: each (count, of how many); and 1 where every mismatch is exactly 0.

    The latter is what the bitwise profile is for, and counts for nothing there.
    """

    def measure(history: History, terms: Terms, index: int) -> float:
        shares = [trends.over(history.value(count, index), history.value(whole, index)) for count, whole in parts]
        exact = history.value(identical, index)
        if terms.profile != "bitwise" and not math.isnan(exact):
            shares.append(float(exact == 1.0))
        return _largest(shares)

    return measure


def dominates(share: str, threshold: float, breaching: Sequence[Rule]) -> Measure:
    """A component's share of the total second moment at steps where one of the rules is beyond its warning; else 0."""

    def measure(history: History, terms: Terms, index: int) -> float:
        value = history.value(share, index)
        off = value > threshold and any(is_off(rule, history, terms, index) for rule in breaching)
        return value if off else 0 * value

    def is_off(rule: Rule, history: History, terms: Terms, index: int) -> bool:
        limit = terms.limits(rule).get("warning")
        return limit is not None and rule.beyond(value_at(rule, history, terms, index), limit.threshold)

    return measure


def together(rules: Sequence[Rule], window: int) -> Measure:
    """How many of the rules were active, at warning or worse, within the last `window` steps."""

    def measure(history: History, terms: Terms, index: int) -> float:
        lately = range(max(0, index + 1 - window), index + 1)
        return float(sum(active(rule, history, terms, lately) for rule in rules if terms.enabled(rule.name)))

    return measure


def _largest(values: Sequence[float]) -> float:
    """The largest of those that are there."""
    return max((value for value in values if not math.isnan(value)), default=math.nan)
