"""What rules compare: builders of what is compared, each a function of a run's history, its terms and a step's index.

It gives one number for that step, of it and of what came before; NaN where there is nothing to say. Pure; thresholds
are the rules' business.
"""

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Final

from offpolicy_monitor.alerts import drift, reward_trend, trends
from offpolicy_monitor.alerts.breaches import active, lasts, value_at
from offpolicy_monitor.alerts.history import Column, History
from offpolicy_monitor.alerts.rule import Compared, Explain, Rule, Terms

#: A line through 50 steps with |t| beyond this would come by chance once in 200 times on each side (t of 48 degrees).
SIGNIFICANT: Final = 2.7
#: What is noted of rewards.
MEANS: Final = "mean reward"
#: A share of entropy lost that is no more than a warning.
UNSURE: Final = 0.99
#: A length is taken for a cap after so many steps in which nothing was longer, where so many of the sequences have it.
CAPPED, LEAST_CAPPED = 10, 0.01
#: Answers that have all had one length from the first step on are so by their nature below this: a letter, a number.
SHORT: Final = 128
#: Tokens that were given a log-prob of 0 whatever they are: so many of them at least are below one half to the trainer.
#: Of those that are a nucleus none is, where the nucleus holds one half or more.
OF_ANY: Final = 0.1
#: What is noted of the test of drift: R, and of how many steps the baseline is; for how many steps growth is held.
EVIDENCE, BASELINE, HELD = "growth: R", "growth: baseline", 5


def figure(path: str) -> Compared:
    """The figure itself."""
    return lambda history, terms, index: history.value(path, index)


def magnitude(path: str) -> Compared:
    """The figure without its sign."""
    return lambda history, terms, index: abs(history.value(path, index))


def beyond_noise(path: str, spread: str, tokens: str, sequences: str) -> Compared:
    """The mean |mean d| of sequences; 0 where it is no more than twice what noise makes that is independent from token
    to token: its standard deviation, times sqrt(2 / (pi L)) for the L tokens of the mean sequence. Where lengths differ
    noise makes up to 1.4 times that, and its mean over few sequences varies.
    """

    def compared(history: History, terms: Terms, index: int) -> float:
        value, *others = (history.value(name, index) for name in (path, spread, tokens, sequences))
        noise = others[0] * math.sqrt(2 / math.pi * trends.over(others[2], others[1]))
        return 0.0 if value <= 2 * noise else value

    return compared


def drop_from_baseline(path: str) -> Compared:
    """How far the figure is below the run's baseline, in its own unit."""
    return lambda history, terms, index: trends.baseline(history.column(path), index) - history.value(path, index)


def prior_of(terms: Terms) -> drift.Prior:
    """What runs of the profile begin with."""
    return drift.PRIORS.get(terms.profile, drift.PRIORS["dense_bf16"])


def growth_of(path: str, least: float) -> Compared:
    """By what factor the figure has grown since the run began, where the test of drift is sure of it, or was at one of
    the last HELD steps; else 0, as where the median of the last LASTED steps is below `least`.
    """

    def compared(history: History, terms: Terms, index: int) -> float:
        values = history.column(path)
        now = trends.median_of(values, index, drift.LASTED, least=1)
        if math.isnan(now):
            return math.nan
        if now < least:
            return 0.0
        found = growth_at(path, history, terms, index)
        evidence = history.notes(EVIDENCE)
        evidence[index] = found.evidence
        for number in range(max(0, index + 1 - HELD), index):
            if evidence[number] is None and values[number] == values[number]:
                evidence[number] = growth_at(path, history, terms, number).evidence
        lately = [seen for seen in evidence[max(0, index + 1 - HELD) : index + 1] if seen is not None]
        return found.times if max(lately) >= drift.ENOUGH else 0.0

    return compared


def growth_at(path: str, history: History, terms: Terms, index: int) -> drift.Growth:
    """What the test of drift says at a step; of how many steps the baseline is, is noted for the next one."""
    sizes = history.notes(BASELINE)
    size = sizes[index - 1] if index > drift.FIRST else None
    found, baseline = drift.of_run(history.column(path), index, prior_of(terms), None if size is None else int(size))
    sizes[index] = baseline
    return found


def grown(path: str, version: str) -> Explain:
    """`k3 has grown 3.1 times since step 12, to 0.0034; a healthy run does so once in 20,000 steps.`"""

    def explain(history: History, terms: Terms, index: int) -> str:
        values = history.column(path)
        found = growth_at(path, history, terms, index)
        began = [number for number in range(index + 1) if values[number] == values[number]][-found.steps_ago]
        now = trends.median_of(values, index, drift.LASTED, least=1)
        weights = new_weights(history.column(version), began)
        seldom = drift.once_in(found)
        rate = f"; a healthy run does so once in {seldom:,} steps" if seldom else ""
        return (
            f"Engine and trainer drift apart: k3 has grown {found.times:.1f} times since step {history.steps[began]}"
            f"{weights}, to {now:.2g}{rate}."
        )

    return explain


def new_weights(versions: Column, index: int) -> str:
    """That the engine took new weights at a step, where that is no matter of course."""
    changes = trends.rises(versions, range(max(1, index - 16), index + 1))
    return f", when the engine took version {versions[index]:.0f}" if changes == [index] else ""


def large(levels: Mapping[str, float], path: str) -> Compared:
    """1 where the figure is above the profile's level, else 0."""

    def compared(history: History, terms: Terms, index: int) -> float:
        return float(history.value(path, index) > levels.get(terms.profile, levels["dense_bf16"]))

    return compared


def large_or_grown(levels: Mapping[str, float], path: str, times: float) -> Compared:
    """1 where the figure is above the profile's level, or `times` what the run began with; else 0."""
    is_large = large(levels, path)

    def compared(history: History, terms: Terms, index: int) -> float:
        if is_large(history, terms, index):
            return 1.0
        values = history.column(path)
        return float(values[index] > times * drift.usual(values, index, prior_of(terms)))

    return compared


def surge(path: str) -> Compared:
    """EWMA over 10 steps over EWMA over 200."""
    return lambda history, terms, index: trends.over(*trends.ewma(history.column(path), index, 10, 200))


def at_the_cap(path: str, longest: str) -> Compared:
    """The share of the sequences that are as long as the longest one, where that is as long as they may be; else 0.

    They may be as long as the run says. Of one that does not, the length is taken for the cap that the longest sequence
    of each of the last CAPPED steps has had, and that at least LEAST_CAPPED of them share; but no length below SHORT
    that all have had at every step.
    """
    certain = is_a_cap(path)

    def compared(history: History, terms: Terms, index: int) -> float:
        share, length = history.value(path, index), history.value(longest, index)
        if math.isnan(share) or math.isnan(length):
            return math.nan
        if terms.length_cap is not None:
            return share if length >= terms.length_cap else 0.0
        lengths = history.column(longest)[max(0, index + 1 - CAPPED) : index + 1]
        capped = len(lengths) == CAPPED and all(one == length for one in lengths)
        if not capped or share < LEAST_CAPPED:
            return 0.0
        return share if length >= SHORT or certain(history, terms, index) else 0.0

    return compared


def is_a_cap(path: str) -> Compared:
    """1 where the run says how long answers may be, or they have been of different lengths at a step so far; else 0.

    Answers that are all of one length from the first step on may be so by their nature.
    """

    def compared(history: History, terms: Terms, index: int) -> float:
        return float(terms.length_cap is not None or any(share < 1 for share in history.column(path)[: index + 1]))

    return compared


def cut(path: str, longest: str) -> Explain:
    """`Many answers are cut off before they end: 60 % of them have 4,096 tokens, ...`; or what else it may be."""
    certain = is_a_cap(path)

    def explain(history: History, terms: Terms, index: int) -> str:
        share, length = history.value(path, index), f"{history.value(longest, index):,.0f} tokens"
        if terms.length_cap is not None:
            return f"Many answers are cut off before they end: {share:.0%} of them have {length}, and may have no more."
        if certain(history, terms, index):
            return (
                f"Many answers are cut off before they end: {share:.0%} of them have {length}, and none has had more."
            )
        return (
            f"All answers have {length}, in each of {CAPPED} steps: they are cut off there, or all of one length, or "
            "sent with their padding and no mask. Say which by PATCH: length_cap is what they may have at most, or "
            "more than they have where nothing is cut off."
        )

    return explain


def spikes(path: str, least: float, times: float, window: int) -> Compared:
    """How often in the last `window` steps the figure went above `least` and above `times` the median of the 50 before.

    Steps in a row count once: what stays is no spike.
    """

    def is_spike(values: Column, index: int) -> bool:
        return values[index] > least and values[index] > times * trends.median_before(values, index, 50)

    def compared(history: History, terms: Terms, index: int) -> float:
        values = history.column(path)
        if math.isnan(values[index]):
            return math.nan
        lately = range(max(0, index + 1 - window), index + 1)
        high = [number for number in lately if is_spike(values, number)]
        return float(sum(number == 0 or not is_spike(values, number - 1) for number in high))

    return compared


def share_of_several(path: str, units: str, least: int) -> Compared:
    """The share, 0 where it is fewer than `least` of the units: one of sixteen is a share, and may be chance."""

    def compared(history: History, terms: Terms, index: int) -> float:
        value = history.value(path, index)
        return value if value * history.value(units, index) > least - 0.5 else 0 * value

    return compared


def entropy_drop(path: str, reward: str, low: float, gone: float) -> Compared:
    """How far entropy fell, relative to 50 steps ago, where it is below `low` nats: from there it may be lost.

    Lost is what is below `gone` nats and half the run's baseline. Where rewards are known, it is 0 while they rise,
    since that is learning, and 1 where entropy is lost and rewards have fallen by a quarter of what they had gained.
    Without rewards nobody can tell one from the other: lost counts as UNSURE, and so does whatever is larger.
    """

    def compared(history: History, terms: Terms, index: int) -> float:
        values, rewards = history.column(path), history.column(reward)
        value = values[index]
        if math.isnan(value):
            return math.nan
        lost = value < gone and value < trends.baseline(values, index) / 2
        change = -trends.change_over(values, index, 50)
        fall = min(change, UNSURE) if value < low and change > 0 else 0.0
        if not (lost or fall):
            return 0.0
        learned = reward_trend.of_run(rewards, history.notes(MEANS), index)
        if learned is None:
            return UNSURE if lost else fall
        if lost and learned.lost > 0.25:
            return 1.0
        return 0.0 if learned.rises else fall

    return compared


def reward_lost(path: str) -> Compared:
    """The share of what the run had gained in reward that it has lost again; NaN before there is enough to tell."""

    def compared(history: History, terms: Terms, index: int) -> float:
        found = reward_trend.of_run(history.column(path), history.notes(MEANS), index)
        return math.nan if found is None else found.lost

    return compared


def larger(first: str, second: str) -> Compared:
    """The larger of two figures; one where the other is not there."""
    return lambda history, terms, index: _largest([history.value(first, index), history.value(second, index)])


def blindness(mask_rate: str, spread: str) -> Compared:
    """How far a mask rate fell while a drift rose, over 50 steps: the smaller relative change, 0 unless both are sure.

    Relative to the means of the 50 steps; sure is a slope whose t is beyond SIGNIFICANT.
    """

    def compared(history: History, terms: Terms, index: int) -> float:
        drifts = history.column(spread)
        fall, fall_t = trends.rise(history.column(mask_rate), index, 50)
        if math.isnan(fall) or not trends.whole_window(drifts, index, 50)[0]:
            return math.nan
        if not fall_t < -SIGNIFICANT:
            return 0.0
        growth, growth_t = trends.rise(drifts, index, 50)
        return min(-fall, growth) if growth_t > SIGNIFICANT else 0.0

    return compared


def length_bias(longest: str, shortest: str, points: float) -> Compared:
    """Odds of being masked in the longest quarter over those in the shortest; 0 unless `points` lie between the rates.

    Odds, rate / (1 - rate), are the rates where these are small, and still tell them apart where both are large. Those
    of the shortest quarter count as at least one in a thousand.
    """

    def compared(history: History, terms: Terms, index: int) -> float:
        high, low = history.value(longest, index), history.value(shortest, index)
        if not high - low > points:
            return 0 * high * low
        return high * (1 - low) / max(low * (1 - high), 1e-3)

    return compared


def in_rollouts(lag: str, version: str) -> Compared:
    """The version lag over the run's constant increment per rollout, where it has one above 1.

    A version should count weight syncs; of a run whose versions are optimizer steps the lag grows within each rollout,
    as far as the version does from one rollout to the next. NaN before a second rollout has shown how far that is; the
    lag itself where no version is known.
    """

    def compared(history: History, terms: Terms, index: int) -> float:
        versions, value = history.column(version), history.value(lag, index)
        if math.isnan(versions[index]):
            return value
        changes = [trends.change(versions, number) for number in range(max(1, index + 1 - 10), index + 1)]
        known = [change for change in changes if change == change]
        return value / increment(known) if known else math.nan

    return compared


def increment(changes: Sequence[float]) -> float:
    """The median of these changes of a version, if three in four are the same and it is above 1; else 1."""
    usual = median(changes)
    return max(1.0, usual) if changes.count(usual) >= 0.75 * len(changes) else 1.0


def bad_share(
    parts: Sequence[tuple[str, str]], filled: tuple[str, str], ratio: str, tail: str, identical: str
) -> Compared:
    """The largest share of bad data: each (count, of how many); and 1 where every mismatch is exactly 0.

    The latter is what the bitwise profile is for, and counts for nothing there. Zeros that were filled in, `filled`,
    count unless the engine renormalises, as a nucleus of one token has log mu 0: then the mean ratio misses more than
    they could, or fewer than OF_ANY of them are of tokens below one half to the trainer, which `tail` would show.
    """

    def compared(history: History, terms: Terms, index: int) -> float:
        shares = [trends.over(history.value(count, index), history.value(whole, index)) for count, whole in parts]
        zeros = trends.over(*(history.value(path, index) for path in filled))
        renormalised = 1 - history.value(ratio, index) > zeros or history.value(tail, index) < OF_ANY * zeros
        shares.append(0.0 if renormalised else zeros)
        exact = history.value(identical, index)
        if terms.profile != "bitwise" and not math.isnan(exact):
            shares.append(float(exact == 1.0))
        return _largest(shares)

    return compared


def dominates(share: str, threshold: float, breaching: Sequence[Rule]) -> Compared:
    """A component's share of the total second moment at steps where one of the rules is beyond its warning; else 0."""

    def compared(history: History, terms: Terms, index: int) -> float:
        value = history.value(share, index)
        off = value > threshold and any(is_off(rule, history, terms, index) for rule in breaching)
        return value if off else 0 * value

    def is_off(rule: Rule, history: History, terms: Terms, index: int) -> bool:
        limit = terms.limits(rule).get("warning")
        return limit is not None and rule.beyond(value_at(rule, history, terms, index), limit.threshold)

    return compared


def together(causes: Sequence[Sequence[Rule]], window: int) -> Compared:
    """How many causes had one of their signs active within the last `window` steps; one with a critical sign counts as
    two. Rules that one cause raises together are one.
    """

    every = [rule for signs in causes for rule in signs]

    def compared(history: History, terms: Terms, index: int) -> float:
        lately = range(max(0, index + 1 - window), index + 1)
        # Most runs have no sign of any cause.
        if not active(every, history, terms, lately):
            return 0.0
        return float(sum(max(gravity(rule, history, terms, lately) for rule in signs) for signs in causes))

    def gravity(rule: Rule, history: History, terms: Terms, steps: range) -> int:
        if not active([rule], history, terms, steps):
            return 0
        critical = terms.limits(rule).get("critical")
        return 1 + (critical is not None and any(lasts(rule, critical, history, terms, index) for index in steps))

    return compared


def _largest(values: Sequence[float]) -> float:
    """The largest of those that are there."""
    return max((value for value in values if not math.isnan(value)), default=math.nan)
