"""An oracle of rules: every rule's number at all steps of a run at once, as columns, and what follows from it.

It is written apart from offpolicy_monitor.alerts, of which it takes thresholds alone: whole columns and masks, where
the rules look back from one step. Shapes: n steps; NaN is a step without the figure.
"""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final, TypeVar

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from offpolicy_monitor.alerts import RULES, Rule, Terms
from offpolicy_monitor.alerts.drift import PRIORS
from offpolicy_monitor.alerts.rules import BEYOND_ALL, LARGE

Column = NDArray[np.float64]
#: Figures of a run by path; NaN where a step, or every step, lacks it.
Columns = Mapping[str, Column]
Measured = Callable[[Columns, Terms], Column]
K3, SPREAD = "gaps.mismatch.k3", "gaps.mismatch.abs_log_ratio_mean"
MASKED, DRIFT = "correction.masked_token_fraction", "gaps.total.abs_log_ratio_mean"
TAIL, SIDE = "signature.low_probability.k3_share", "signature.low_probability.direction"
EVIDENCE = ("outliers.mismatch.ratio", "signature.lag.share", "signature.lag.z", "policy_lag.max", TAIL)
LONGEST, SHORTEST = "correction.length_bias.longest", "correction.length_bias.shortest"
#: Signs of one cause together.
BEFORE_COLLAPSE: Final = (
    ("MismatchDrift", "MismatchSpike", "LowEffectiveSampleSize", "BadUpdates", "LengthBias"),
    ("LengthSurge",),
    ("EntropyCollapse",),
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


def logs_of(values: Column) -> tuple[Column, NDArray[np.int64]]:
    """log k3, at least 1e-5, of the steps that have one, and where they are."""
    at = np.flatnonzero(~np.isnan(values))
    return np.log(np.maximum(values[at], 1e-5)), at


def level(first: Column, noise: float, profile: str) -> tuple[float, float]:
    """Mean and variance of a baseline: of steps winsorised at two noises from their median, and of the prior."""
    usual, factor = PRIORS[profile][:2]
    precision, own = np.log(factor) ** -2, len(first) / noise**2
    total = np.clip(first, np.median(first) - 2 * noise, np.median(first) + 2 * noise).sum() / noise**2
    mean = (np.log(usual) * precision + total) / (precision + own)
    return float(mean), float(1 / (precision + own) + 0.01)


def noise_of(first: Column) -> float:
    """Of steps: pooled from eight of 0.35 and from the differences."""
    apart = np.abs(np.diff(first))
    own = (np.median(apart) / 0.954) ** 2 if len(apart) else 0.0
    return float(max(0.2, np.sqrt((8 * 0.35**2 + len(apart) * own) / (8 + len(apart)))))


def evidence(values: Column, first: int, healthy: int, profile: str, steps: int) -> tuple[float, float, int]:
    """R, growth, and the steps since: each of the last 32 steps as a change, in a table of their own."""
    noise, lasts = noise_of(values[:first]), np.arange(3, min(32, len(values) - 2) + 1)
    if not len(lasts):
        return 0.0, 1.0, 0
    sizes, which = np.unique(np.minimum(len(values) - lasts, healthy), return_inverse=True)
    mean, variance = np.array([level(values[:size], noise, profile) for size in sizes.tolist()])[which].T
    tolerated = np.clip(np.log(1.41) / 24 * (steps - (sizes[which] + 1) / 2), 0.1, np.log(2))
    above = np.minimum(values[: -lasts[-1] - 1 : -1] - (mean + tolerated)[:, None], np.log(4))
    over = np.where(np.arange(lasts[-1]) < lasts[:, None], above, 0.0).sum(1) / lasts
    shifts = np.log([2, 4])[:, None]
    ratio = np.exp(np.minimum(50, shifts * (over - shifts / 2) / (variance + noise**2 / lasts))).mean(0)
    ratio[over <= 0] = 0.0
    best = int(ratio.argmax())
    if not ratio[best] > 0:
        return 0.0, 1.0, 0
    last = int(lasts[best])
    return float(ratio.sum()), float(np.exp(np.median(values[-min(last, 7) :]) - mean[best])), last


def beginnings(values: Column, profile: str, step: int) -> tuple[Column, int]:
    """The first steps' log k3 as far as a step, and of how many the baseline is."""
    return _beginnings(values[: min(26, step + 1)].tobytes(), profile)


@cache
def _beginnings(values: bytes, profile: str) -> tuple[Column, int]:
    first = logs_of(np.frombuffer(values))[0]
    found = evidence(first, len(first), len(first), profile, len(first)) if len(first) else (0.0, 1.0, 0)
    return first, len(first) - (found[2] if found[0] >= 10 else 0)


def growth(values: Column, profile: str) -> tuple[Column, Column]:
    """[n] R and by what factor k3 has grown, at every step."""
    sure, times = _growth(values.tobytes(), profile)
    return sure.copy(), times


@cache
def _growth(column: bytes, profile: str) -> tuple[Column, Column]:
    values = np.frombuffer(column)
    found = np.zeros((2, len(values)))
    for step in range(len(values)):
        first, healthy = beginnings(values, profile, step)
        if step < 26:
            found[:, step] = evidence(first, len(first), len(first), profile, len(first))[:2] if len(first) else (0, 1)
        elif len(first):
            newest = logs_of(values[26 : step + 1])[0][-32:]
            found[:, step] = evidence(np.append(first, newest), len(first), healthy, profile, step + 1)[:2]
    return found[0], found[1]


def drift(of: Columns, terms: Terms) -> Column:
    sure, times = growth(of[K3], terms.profile)
    known = ~np.isnan(of[K3])
    sure[~known] = -np.inf
    lately = np.array([sure[max(0, step - 4) : step + 1].max() for step in range(len(sure))])
    now = median_of(of[K3], 3, least=1)
    return np.where(known, np.where((now >= 2.5e-4) & (lately >= 10), times, 0.0), np.nan)


def is_large(of: Columns, terms: Terms, levels: Mapping[str, float]) -> NDArray[np.bool_]:
    return np.asarray(of[K3] > levels[terms.profile])


def is_grown(of: Columns, terms: Terms) -> NDArray[np.bool_]:
    found = is_large(of, terms, BEYOND_ALL)
    for step in np.flatnonzero(~found & is_large(of, terms, LARGE)).tolist():
        first, healthy = beginnings(of[K3], terms.profile, step)
        if len(first) >= 2:
            usual = np.exp(level(first[:healthy], noise_of(first), terms.profile)[0])
            found[step] = of[K3][step] > 3 * usual
    return found


def is_a_cap(of: Columns, terms: Terms) -> NDArray[np.bool_]:
    return (np.cumsum(of["longest_fraction"] < 1) > 0) | (terms.length_cap is not None)


GRAVE: Final[Mapping[str, Callable[[Columns, Terms], NDArray[np.bool_]]]] = {
    "MismatchKL": is_grown,
    "MismatchDrift": lambda of, terms: is_large(of, terms, LARGE),
    "Truncation": is_a_cap,
}


def spike(of: Columns, terms: Terms) -> Column:
    values = of[K3]
    high = (values > 1e-3) & (values > 10 * median_before(values, 50))
    begins = high & ~np.append(False, high[:-1])
    return count_within(np.where(np.isnan(values), np.nan, begins), 10)


def miscalibration(of: Columns, terms: Terms) -> Column:
    ratio, chi2, tokens = (of[f"gaps.mismatch.{name}"] for name in ("ratio_mean", "chi2", "tokens"))
    with np.errstate(divide="ignore", invalid="ignore"):
        error = np.sqrt(np.maximum(1 + chi2 - ratio**2, 0) / tokens)
    return np.where(np.abs(ratio - 1) > 5 * error, np.abs(ratio - 1), 0 * ratio)


def extreme(of: Columns, terms: Terms) -> Column:
    values = of["gaps.mismatch.sequence.extreme_fraction"]
    return np.where(values * of["sequences"] > 1.5, values, 0 * values)


def learning(of: Columns) -> tuple[Column, Column]:
    """[n] whether rewards rise (NaN: nobody can tell), and the share of their gain that is lost."""
    return _learning(of["reward_mean"].tobytes())


@cache
def _learning(column: bytes) -> tuple[Column, Column]:
    values = np.frombuffer(column)
    rises, lost = np.full(len(values), np.nan), np.full(len(values), np.nan)
    known = np.flatnonzero(~np.isnan(values))
    for number, step in enumerate(known):
        if number >= 19:
            seen = values[known[: number + 1]]
            means = sliding_window_view(seen, 10).mean(1)
            noise = np.median(np.abs(np.diff(seen[-100:]))) / 0.954
            rises[step] = means[-1] - means[max(0, len(means) - 51)] > 2 * noise * np.sqrt(0.2)
            fall, gain = means.max() - means[-1], means.max() - means[0]
            share = fall / gain if gain > 3 * noise else min(0.75, fall / max(gain, 1e-12))
            lost[step] = share if fall > 3 * noise else 0.0
    return rises, lost


def entropy(of: Columns, terms: Terms) -> Column:
    values = of["entropy_mean"]
    fall = np.where(values < 0.5, np.clip(np.nan_to_num(-change_over(values, 50)), 0, 0.99), 0.0)
    lost = (values < 0.2) & (values < baseline(values) / 2)
    rises, gone = learning(of)
    known = np.where(lost & (gone > 0.25), 1.0, np.where(rises == 1, 0.0, fall))
    found = np.where(np.isnan(rises), np.where(lost, 0.99, fall), known)
    return np.where(np.isnan(values), np.nan, found)


def blindness(of: Columns, terms: Terms) -> Column:
    (fall, fall_t), (growth, growth_t) = rise(of[MASKED], 50), rise(of[DRIFT], 50)
    sure = (fall_t < -2.7) & (growth_t > 2.7)
    return np.where(np.isnan(fall) | np.isnan(growth), np.nan, np.where(sure, np.minimum(-fall, growth), 0.0))


def length_bias(of: Columns, terms: Terms) -> Column:
    high, low = of[LONGEST], of[SHORTEST]
    odds = high * (1 - low) / np.maximum(low * (1 - high), 1e-3)
    return np.where(high - low > 0.05, odds, 0 * high * low)


def rises(of: Columns) -> Column:
    """[n] k3 before a rise that had lasted three steps at a step; 0 where none had."""
    values, spreads = of[K3], of[SPREAD]
    before = np.maximum(earlier(median_before(values, 10, least=5), 2), 1e-5)
    usual = earlier(median_before(spreads, 10, least=5), 2)
    rose = (least_of(values, 3) > 3 * before) & (least_of(spreads, 3) > 1.7 * usual)
    return np.where(rose & (np.arange(len(values)) >= 7), before, 0.0)


def is_of_weights(of: Columns, began: int, step: int) -> bool:
    """Whether a rise that began at one step is of weights, as seen at another."""
    low = {path: least_of(of[path], 3)[step] for path in EVIDENCE}
    older = of["policy_lag.max"][:began]
    older = older[~np.isnan(older)][-10:]
    new = np.diff(of["policy_version"], prepend=np.nan) > 0
    since, before = (part[~np.isnan(part)] for part in (of[K3][began : step + 1], of[K3][:began]))
    sizes, scores = (of[path][began : step + 1] for path in ("signature.learned.difference", "signature.learned.z"))
    sizes, scores = sizes[~np.isnan(sizes)], scores[~np.isnan(scores)]
    third, pairs = len(since) // 3, np.subtract.outer(since, since)
    deviation = np.sqrt(len(since) * (len(since) - 1) * (2 * len(since) + 5) / 18)
    grows = (
        len(since) >= 6
        and of["policy_version"][step] > of["policy_version"][began]
        and np.median(since[-third:]) > 1.5 * np.median(since[:third])
        and np.tril(np.sign(pairs)).sum() / deviation > 2.3
        and since[0] > 2 * before[-3:].max()
        and not low[TAIL] * of[SIDE][step] ** 2 > 0.3
        and len(scores) >= 6
        and np.median(sizes) > 0.12
        and scores.sum() / np.sqrt(len(scores)) > 4
    )
    return bool(
        low["outliers.mismatch.ratio"] > 3
        or (low["signature.lag.share"] > 0.55 and low["signature.lag.z"] > 3.2)
        or (len(older) >= 5 and low["policy_lag.max"] > older.max())
        or (new[began] and new[max(1, began - 10) : began].sum() <= 1)
        or grows
    )


def unsynced(of: Columns, terms: Terms) -> Column:
    values, rose, found, held = of[K3], rises(of), np.full(len(of[K3]), np.nan), 0.0
    now, low, known = median_of(values, 3, least=1), least_of(values, 3), np.cumsum(~np.isnan(values))
    for step in np.flatnonzero(~np.isnan(values)).tolist():
        held = held if now[step] > 1.5 * held else 0.0
        for end in range(max(0, step - 16), step + 1):
            if not held and rose[end] and low[step] > 3 * rose[end] and is_of_weights(of, end - 2, step):
                held = rose[end]
        if known[step] > 5 and not np.isnan(of["policy_version"][step]):
            found[step] = now[step] / held if held else 0.0
    return found


def in_rollouts(of: Columns, terms: Terms) -> Column:
    lag, versions = of["policy_lag.max"], of["policy_version"]
    changes, found = np.diff(versions, prepend=np.nan), lag.copy()
    for step in np.flatnonzero(~np.isnan(versions)):
        known = changes[max(0, step - 9) : step + 1]
        known = known[~np.isnan(known)]
        usual = np.median(known) if len(known) else np.nan
        steady = (known == usual).mean() >= 0.75 if len(known) else True
        found[step] /= np.maximum(1.0, usual) if steady else 1.0
    return found


def bad_share(of: Columns, terms: Terms) -> Column:
    parts = ("excluded_tokens.nonfinite", "suspect_tokens.positive")
    shares = [over(of[path], of["tokens"]) for path in parts]
    filled = over(of["zero_filled_tokens"], of["tokens"])
    renormalised = (1 - of["gaps.mismatch.ratio_mean"] > filled) | (of["gaps.mismatch.tail_fraction"] < 0.1 * filled)
    shares.append(np.where(renormalised, 0.0, filled))
    if terms.profile != "bitwise":
        exact = of["gaps.mismatch.exact_fraction"]
        shares.append(np.where(np.isnan(exact), np.nan, exact == 1.0))
    return np.asarray(np.fmax.reduce(shares))


def dominating(path: str) -> Measured:
    def measure(of: Columns, terms: Terms) -> Column:
        off = np.zeros(len(of[path]), np.bool_)
        for name in ("TotalOffPolicy", "SecondMoment"):
            threshold = threshold_of(BY_NAME[name], "warning", terms)
            off |= measured(BY_NAME[name], of, terms) > (np.inf if threshold is None else threshold)
        return np.where(np.isnan(of[path]), np.nan, np.where(off & (of[path] > 0.8), of[path], 0.0))

    return measure


def together(of: Columns, terms: Terms) -> Column:
    found = np.zeros(len(of["tokens"]))
    for signs in BEFORE_COLLAPSE:
        grave = np.zeros(len(found))
        for rule in (BY_NAME[name] for name in signs if terms.enabled(name)):
            for severity in rule.severities:
                flags = _numbers(rule, severity, of, terms)[2] >= steps_of(rule, severity, terms)
                lately = count_within(flags.astype(np.float64), 20) > 0
                grave = np.fmax(grave, lately * (2 if severity == "critical" else 1))
        found += grave
    return found


def truncation(of: Columns, terms: Terms) -> Column:
    share, longest = of["longest_fraction"], of["sequence_length_max"]
    if terms.length_cap is None:
        same = [index >= 9 and len(set(longest[index - 9 : index + 1].tolist())) == 1 for index in range(len(share))]
        cut = np.array(same) & (share >= 0.01) & ((longest >= 128) | is_a_cap(of, terms))
    else:
        cut = longest >= terms.length_cap
    return np.where(np.isnan(share) | np.isnan(longest), np.nan, np.where(cut, share, 0.0))


def apart(of: Columns, terms: Terms) -> Column:
    spread, tokens, sequences = (of[f"gaps.mismatch.{name}"] for name in ("log_ratio_std", "tokens", "sequences"))
    seen = of["gaps.mismatch.sequence.log_geometric_ratio_abs_mean"]
    return np.where(
        seen > 2 * spread * np.sqrt(2 / np.pi / tokens * sequences),
        seen,
        np.where(np.isnan(spread * tokens * sequences), seen, 0 * seen),
    )


def uncalibrated(of: Columns, terms: Terms) -> Column:
    tokens, excess, entropy, z = (of[f"calibration.{name}"] for name in ("tokens", "excess", "entropy", "z"))
    gaps = np.array([of["gaps.mismatch.k3"], of["gaps.total.k3"]])
    gap = np.where((gaps < 0).any(0), np.inf, np.fmax(*gaps))
    found = np.full(len(z), np.nan)
    for step in np.flatnonzero(~np.isnan(z)).tolist():
        lately = np.arange(max(0, step - 9), step + 1)
        at = lately[~np.isnan(tokens + excess + entropy + z)[lately] & (z[lately] != 0)]
        if len(at) < 5:
            continue
        whole = tokens[at].sum()
        mean, level = ((tokens * figure)[at].sum() / whole for figure in (excess, entropy))
        error = np.sqrt(np.square(tokens * excess / z)[at].sum()) / whole
        known = gap[lately][~np.isnan(gap[lately])]
        distance = known.sum() / max(1, len(known))
        beyond = np.abs(mean) - np.sqrt(2 * distance * whole) * error
        found[step] = max(0.0, beyond / level) if abs(mean) > 5 * error else 0.0
    return found


#: Rules whose number is not just the figure.
MEASURED: Final[Mapping[str, Measured]] = {
    "MismatchDrift": drift,
    "MismatchSpike": spike,
    "ExtremeSequences": extreme,
    "RatioNotCalibrated": miscalibration,
    "PerplexityGap": apart,
    "SamplingNotCalibrated": uncalibrated,
    "TotalOffPolicy": lambda of, terms: np.abs(of["gaps.total.log_ratio_mean"]),
    "MaskRate": lambda of, terms: np.fmax(of[MASKED], of["correction.masked_sequence_fraction"]),
    "MaskBlind": blindness,
    "LengthBias": length_bias,
    "EntropyCollapse": entropy,
    "RewardCollapse": lambda of, terms: learning(of)[1],
    "LengthSurge": lambda of, terms: over(ewma(of["sequence_length_mean"], 10), ewma(of["sequence_length_mean"], 200)),
    "Truncation": truncation,
    "RoutingAgreement": lambda of, terms: baseline(of["routing.mismatch.agreement"]) - of["routing.mismatch.agreement"],
    "SyncBroken": unsynced,
    "StaleData": in_rollouts,
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
    """The breaching steps that the severity needs."""
    return int(terms.overrides.get(rule.name, {}).get("steps") or rule.steps[severity])


def _stretches(values: Column, hits: NDArray[np.bool_], steps: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """[n] how many steps have breached, up to each step, and the index of the first; steps without are skipped.

    Where five steps or more are needed, two of them and two more may be better.
    """
    counts, firsts = np.zeros(len(values), np.int64), np.zeros(len(values), np.int64)
    known, spare = np.flatnonzero(~np.isnan(values)).tolist(), 2 if steps >= 5 else 0
    hit = hits[known].tolist()
    worse = np.cumsum([0, *hit]).tolist()  # of the first so many
    for end in range(len(known)):
        begin = end + 1
        while begin > 0:
            until = min(end + 1, begin - 1 + steps + spare)
            if not hit[begin - 1] and until - begin + 1 - (worse[until] - worse[begin - 1]) > spare:
                break
            begin -= 1
        if worse[end + 1] > worse[begin]:
            counts[known[end]] = worse[end + 1] - worse[begin]
            firsts[known[end]] = known[hit.index(True, begin)]
    return counts, firsts


Result = TypeVar("Result")
#: What was computed of columns, by what they are and whose; the columns are kept, so that no others have their id.
_KEPT: Final[dict[tuple[int, str], tuple[Columns, Any]]] = {}


def kept(of: Columns, name: str, make: Callable[[], Result]) -> Result:
    """What `make` answers, once for the same columns and name."""
    key = id(of), name
    if key not in _KEPT:
        _KEPT[key] = of, make()
    found: Result = _KEPT[key][1]
    return found


def in_total(of: Columns) -> Columns:
    """The total gap in the place of mismatch."""
    return kept(of, "in total", lambda: _in_total(of))


def _in_total(of: Columns) -> Columns:
    moves = ("gaps.total.", "outliers.total.")
    moved = {path.replace("total", "mismatch", 1): of[path] for path in of if path.startswith(moves)}
    return {**of, **moved}


def said(rule: Rule, severity: Any, of: Columns, terms: Terms) -> Callable[[int], dict[str, Any]]:
    """What a severity says at a step, as judge.shown tells it."""
    threshold, required = threshold_of(rule, severity, terms), steps_of(rule, severity, terms)
    lacking = kept(of, "lacking", lambda: {path: _lacking(column) for path, column in of.items()})
    own, total = (
        (numbers, _last_known(numbers[0]))
        for numbers in (_numbers(rule, severity, columns, terms) for columns in (of, in_total(of)))
    )

    def lacks(path: str, step: int) -> bool:
        return lacking[path][step]

    def at(step: int) -> dict[str, Any]:
        told: dict[str, Any] = {"alert": rule.name, "severity": severity}
        missing = [path for path in rule.inputs if lacks(path, step)]
        if not terms.enabled(rule.name) or (threshold is None and not missing):
            return told | {"state": "disabled"}
        drawn = {} if threshold is None else {"threshold": threshold}
        stands_in = bool(missing) and _stands_in(missing, of, lambda path: lacks(path, step))
        if stands_in and threshold is None:
            return told | {"state": "disabled"}
        if missing and (not stands_in or (severity == "critical" and may_be_stale(of, step))):
            return told | {"state": "silent", "missing": missing, **drawn}
        (values, hits, counts, firsts), last_known = total if stands_in else own
        last = last_known[step]
        count = 0 if last is None else int(counts[last])
        count = count if count >= required or (last is not None and hits[last]) else 0
        state = "quiet" if not count else "active" if count >= required else "pending"
        told |= {"state": state, "threshold": threshold, "required_steps": required, "breach_steps": count}
        told |= {} if last is None else {"value": values[last]}
        return told | ({"since_step": int(firsts[last])} if count and last is not None else {})

    return at


def _lacking(column: Column) -> list[bool]:
    """[n] whether none of the last ten steps has the figure."""
    steps = np.minimum(10, np.arange(len(column)) + 1)
    return (count_within(np.isnan(column).astype(np.float64), 10) == steps).tolist()


def _last_known(values: Column) -> list[int | None]:
    """[n] the newest step that has a value."""
    known = np.maximum.accumulate(np.where(np.isnan(values), -1, np.arange(len(values))))
    return [None if step < 0 else step for step in known.tolist()]


def may_be_stale(of: Columns, step: int) -> bool:
    lags = of["policy_lag.max"][max(0, step - 9) : step + 1]
    return not (lags == lags).any() or bool(np.nanmax(lags) > 0)


def _stands_in(missing: list[str], of: Columns, lacks: Callable[[str], bool]) -> bool:
    twins = [path.replace(".mismatch.", ".total.", 1) for path in missing]
    had = any(path.startswith("gaps.mismatch.") and not lacks(path) for path in of)
    return not had and all(twin != path and not lacks(twin) for path, twin in zip(missing, twins, strict=True))


def _numbers(rule: Rule, severity: Any, of: Columns, terms: Terms) -> tuple[Column, Any, Any, Any]:
    """[n] what is compared, whether it breaches, how many steps have, and the first of them."""
    return kept(of, f"{rule.name} {severity} {id(terms)}", lambda: _made(rule, severity, of, terms))


def _made(rule: Rule, severity: Any, of: Columns, terms: Terms) -> tuple[Column, Any, Any, Any]:
    values, threshold = measured(rule, of, terms), threshold_of(rule, severity, terms)
    hits = np.zeros(len(values), np.bool_)
    if threshold is not None:
        hits = np.asarray(values > threshold if rule.above else values < threshold)
    if rule.name in GRAVE and severity == "critical" and severity not in terms.overrides.get(rule.name, {}):
        hits &= GRAVE[rule.name](of, terms)
    return values, hits, *_stretches(values, hits, steps_of(rule, severity, terms))
