"""An oracle of rules: every rule's number at all steps of a run at once, as columns, and what follows from it.

It is written apart from offpolicy_monitor.alerts, of which it takes thresholds alone: whole columns and masks, where
the rules look back from one step. Shapes: n steps; NaN is a step without the figure.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from offpolicy_monitor.alerts import RULES, Rule, Terms

Column = NDArray[np.float64]
#: Figures of a run by path; NaN where a step, or every step, lacks it.
Columns = Mapping[str, Column]
Measured = Callable[[Columns, Terms], Column]
K3, SPREAD = "gaps.mismatch.k3", "gaps.mismatch.abs_log_ratio_mean"
MASKED, DRIFT = "correction.masked_token_fraction", "gaps.total.abs_log_ratio_mean"
LONGEST, SHORTEST = "correction.length_bias.longest", "correction.length_bias.shortest"
BEFORE_COLLAPSE: Final = (
    *("MismatchDrift", "MismatchSpike", "LowEffectiveSampleSize", "BadUpdates"),
    *("LengthSurge", "LengthBias", "EntropyCollapse"),
)
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
    apart, xx = windows - means[:, None], float(((np.arange(window) - (window - 1) / 2) ** 2).sum())
    slope, yy = apart @ steps / xx, (apart**2).sum(1)
    error = np.sqrt((np.abs(yy - slope**2 * xx) + 1e-12 * yy) / (window - 2) / xx)
    ends = np.flatnonzero(known)[window - 1 :]
    relative[ends] = over(slope * (window - 1), means)
    certainty[ends] = slope / np.maximum(error, 1e-300)
    return relative, certainty


def drift(of: Columns, terms: Terms) -> Column:
    now = median_of(of[K3], 7)
    ratio = over(now, np.maximum(baseline(of[K3]), 1e-5))
    return np.where(now < 2.5e-4, 0 * ratio, ratio)


def spike(of: Columns, terms: Terms) -> Column:
    values = of[K3]
    high = (values > 1e-3) & (values > 10 * median_before(values, 50))
    return count_within(np.where(np.isnan(values), np.nan, high), 10)


def miscalibration(of: Columns, terms: Terms) -> Column:
    ratio, chi2, tokens = (of[f"gaps.mismatch.{name}"] for name in ("ratio_mean", "chi2", "tokens"))
    with np.errstate(divide="ignore", invalid="ignore"):
        error = np.sqrt(np.maximum(1 + chi2 - ratio**2, 0) / tokens)
    return np.where(np.abs(ratio - 1) > 5 * error, np.abs(ratio - 1), 0 * ratio)


def extreme(of: Columns, terms: Terms) -> Column:
    values = of["gaps.mismatch.sequence.extreme_fraction"]
    return np.where(values * of["sequences"] > 1.5, values, 0 * values)


def entropy(of: Columns, terms: Terms) -> Column:
    values = of["entropy_mean"]
    fall = np.where(values < 0.5, np.nan_to_num(-change_over(values, 50)), 0.0)
    lost = (values < 0.2) & (values < baseline(values) / 2)
    return np.where(lost, 1.0, np.where(np.isnan(values), np.nan, fall))


def blindness(of: Columns, terms: Terms) -> Column:
    (fall, fall_t), (growth, growth_t) = rise(of[MASKED], 50), rise(of[DRIFT], 50)
    sure = (fall_t < -2.7) & (growth_t > 2.7)
    return np.where(np.isnan(fall) | np.isnan(growth), np.nan, np.where(sure, np.minimum(-fall, growth), 0.0))


def length_bias(of: Columns, terms: Terms) -> Column:
    high, low = of[LONGEST], of[SHORTEST]
    odds = high * (1 - low) / np.maximum(low * (1 - high), 1e-3)
    return np.where(high - low > 0.05, odds, 0 * high * low)


def jump(of: Columns, terms: Terms) -> Column:
    values, spreads = of[K3], of[SPREAD]
    new = earlier(np.diff(of["policy_version"], prepend=np.nan), 2)
    before = earlier(median_before(values, 10, least=5), 2)
    before_spread = earlier(median_before(spreads, 10, least=5), 2)
    moved = least_of(spreads, 3) > 1.7 * before_spread
    jumped = least_of(values, 3) / np.maximum(before, 1e-5)
    return np.where(np.isnan(jumped) | np.isnan(new), np.nan, np.where((new != 0) & moved, jumped, 0.0))


def bad_share(of: Columns, terms: Terms) -> Column:
    parts = ("excluded_tokens.nonfinite", "suspect_tokens.positive", "zero_filled_tokens")
    shares = [over(of[path], of["tokens"]) for path in parts]
    if terms.profile != "bitwise":
        exact = of["gaps.mismatch.exact_fraction"]
        shares.append(np.where(np.isnan(exact), np.nan, exact == 1.0))
    return np.asarray(np.fmax.reduce(shares))


def dominating(path: str) -> Measured:
    def measure(of: Columns, terms: Terms) -> Column:
        off = np.zeros(len(of[path]), np.bool_)
        for name in ("TotalOffPolicy", "SecondMoment"):
            threshold = threshold_of(BY_NAME[name], "warning", terms)
            off |= lengths(measured(BY_NAME[name], of, terms), threshold, above=True) > 0
        return np.where(np.isnan(of[path]), np.nan, np.where(off & (of[path] > 0.8), of[path], 0.0))

    return measure


def together(of: Columns, terms: Terms) -> Column:
    found = np.zeros(len(of["tokens"]))
    for rule in (BY_NAME[name] for name in BEFORE_COLLAPSE if terms.enabled(name)):
        flags = np.zeros(len(found), np.bool_)
        for severity in rule.severities:
            lasting = lengths(measured(rule, of, terms), threshold_of(rule, severity, terms), rule.above)
            flags |= lasting >= steps_of(rule, severity, terms)
        found += count_within(flags.astype(np.float64), 20) > 0
    return found


#: Rules whose number is not just the figure.
MEASURED: Final[Mapping[str, Measured]] = {
    "MismatchDrift": drift,
    "MismatchSpike": spike,
    "ExtremeSequences": extreme,
    "RatioNotCalibrated": miscalibration,
    "TotalOffPolicy": lambda of, terms: np.abs(of["gaps.total.log_ratio_mean"]),
    "MaskRate": lambda of, terms: np.fmax(of[MASKED], of["correction.masked_sequence_fraction"]),
    "MaskBlind": blindness,
    "LengthBias": length_bias,
    "EntropyCollapse": entropy,
    "LengthSurge": lambda of, terms: over(ewma(of["sequence_length_mean"], 10), ewma(of["sequence_length_mean"], 200)),
    "RoutingAgreement": lambda of, terms: baseline(of["routing.mismatch.agreement"]) - of["routing.mismatch.agreement"],
    "SyncBroken": jump,
    "DataQuality": bad_share,
    "StalenessDominates": dominating("attribution.staleness"),
    "MismatchDominates": dominating("attribution.mismatch"),
    "CollapseRisk": together,
}
BY_NAME: Final = {rule.name: rule for rule in RULES}


def measured(rule: Rule, of: Columns, terms: Terms) -> Column:
    """What the rule compares, [n]."""
    return MEASURED[rule.name](of, terms) if rule.name in MEASURED else of[rule.inputs[0]]


def threshold_of(rule: Rule, severity: Any, terms: Terms) -> float | None:
    """The threshold in force."""
    override = terms.overrides.get(rule.name, {})
    found: float | None = override.get(severity, rule.threshold(severity, terms.correction, terms.profile))
    return found


def steps_of(rule: Rule, severity: Any, terms: Terms) -> int:
    """The breaching steps in a row that the severity needs."""
    return int(terms.overrides.get(rule.name, {}).get("steps") or rule.steps[severity])


def lengths(values: Column, threshold: float | None, above: bool) -> NDArray[np.int64]:
    """[n] for how many steps in a row, up to each step, the threshold has been breached; steps without are skipped."""
    found, count = np.zeros(len(values), np.int64), 0
    for index in np.flatnonzero(~np.isnan(values)) if threshold is not None else ():
        count = count + 1 if (values[index] > threshold if above else values[index] < threshold) else 0
        found[index] = count
    return found


def said(rule: Rule, severity: Any, of: Columns, terms: Terms) -> Callable[[int], dict[str, Any]]:
    """What a severity says at a step, as judge.shown tells it."""
    values, threshold, required = measured(rule, of, terms), threshold_of(rule, severity, terms), rule.steps[severity]
    required = int(terms.overrides.get(rule.name, {}).get("steps") or required)
    lasting, known = lengths(values, threshold, rule.above), np.flatnonzero(~np.isnan(values))
    lacking = {path: count_within(np.isnan(of[path]).astype(np.float64), 10) for path in rule.inputs}

    def at(step: int) -> dict[str, Any]:
        told: dict[str, Any] = {"alert": rule.name, "severity": severity}
        missing = [path for path in rule.inputs if lacking[path][step] == min(10, step + 1)]
        if not terms.enabled(rule.name) or (threshold is None and not missing):
            return told | {"state": "disabled"}
        if missing:
            drawn = {} if threshold is None else {"threshold": threshold}
            return told | {"state": "silent", "missing": missing, **drawn}
        seen = int(np.searchsorted(known, step, "right"))
        count = int(lasting[known[seen - 1]]) if seen else 0
        state = "quiet" if not count else "active" if count >= required else "pending"
        told |= {"state": state, "threshold": threshold, "required_steps": required, "breach_steps": count}
        told |= {"value": values[known[seen - 1]]} if seen else {}
        return told | ({"since_step": known[seen - count]} if count else {})

    return at
