"""The rules of the catalogue as pure functions of a gap's tokens.

Shapes: T valid tokens, N sequences. Bounds are inclusive to keep; single thresholds drop if strictly greater.
Comparisons are made in log space. Levels: `token` d, `geometric` L = mean of d, `sequence` D = sum of d over the
sequence. A rule for one sign looks at each token's own advantage and never drops where A == 0, unless it says so.
Sources: docs/methods.md.
"""

import math
from typing import Literal

import torch
from torch import Tensor

from offpolicy_monitor.core.advantages import Advantages
from offpolicy_monitor.core.decision import SequenceDrops, TokenDrops, Weights
from offpolicy_monitor.core.divergences import (
    binary_kl,
    binary_variance,
    bounded_ratio,
    comparable,
    indicator_above,
    indicator_below,
    ratio_excess,
)
from offpolicy_monitor.core.gap import GapTokens
from offpolicy_monitor.core.select import no_places, places_above, places_below

Level = Literal["token", "sequence", "geometric"]
Statistic = Literal["ratio", "k1", "k2", "k3"]
Reduce = Literal["mean", "max", "sum"]


def truncate(gap: GapTokens, *, level: Level, lower: float | None, upper: float | None) -> Weights:
    """Truncated importance sampling: weight = clip(r, lower, upper). Source: Yao et al., verl, slime."""
    a_token = level == "token"
    statistic = gap.log_ratio if a_token else _sequence_statistic(gap, level)
    excess = gap.columns.excess if a_token else ratio_excess(statistic)
    ratio = gap.columns.ratio if a_token else bounded_ratio(statistic)
    low, high = _indicators(statistic, _log_bound(lower), _log_bound(upper))
    return Weights(_clip(ratio, lower, upper, 0.0), _clip(excess, lower, upper, 1.0), low + high, a_token)


def cispo(gap: GapTokens, *, lower: float, upper: float) -> Weights:
    """CISPO: weight = clip(r, 1 - lower, 1 + upper) at token level. Source: MiniMax-M1, slime, SkyRL."""
    return truncate(gap, level="token", lower=max(0.0, 1 - lower), upper=1 + upper)


def mask(
    gap: GapTokens,
    *,
    level: Level,
    statistic: Statistic,
    reduce: Reduce | None,
    lower: float | None,
    upper: float | None,
) -> TokenDrops | SequenceDrops:
    """Masked importance sampling: drop where the statistic at the level leaves [lower, upper].

    `ratio` compares r at the level; k1 = -d, k2 = d^2 / 2, k3 = expm1(d) - d compare a token's value, or one figure a
    sequence made by `reduce`. Source: IcePop, Liu et al. (MIS), verl, slime, NeMo-RL, SkyRL.
    """
    if statistic == "ratio":
        lower, upper = _log_bound(lower), _log_bound(upper)
    if level == "token":
        return TokenDrops(*_outside(_token_statistic(gap, statistic), lower, upper))
    values = _sequence_statistic(gap, level) if statistic == "ratio" else _sequence_k(gap, statistic, reduce)
    return SequenceDrops(*_indicators(values, lower, upper))


def veto(gap: GapTokens, *, lower: float | None, upper: float | None) -> SequenceDrops:
    """Drop a sequence if any token's ratio is below lower or above upper. Source: slime, verl 0.7."""
    low, _ = _indicators(gap.sequence_min, _log_bound(lower), None)
    _, high = _indicators(gap.sequence_max, None, _log_bound(upper))
    return _without_sides(torch.maximum(low, high))


def opsm(gap: GapTokens, *, delta: float) -> TokenDrops | SequenceDrops:
    """Off-policy sequence masking: drop where A < 0 and -L > delta. Source: DeepSeek-V3.2."""
    advantages = _advantages(gap)
    far = indicator_above(-gap.sequence_mean, delta)
    if advantages.a_token:
        return TokenDrops(places_above(gap.segments.spread(far) * advantages.negative, 0.5), no_places(far))
    return _without_sides(far * advantages.negative)


def ppo_clip(gap: GapTokens, *, level: Level, lower: float, upper: float) -> TokenDrops | SequenceDrops:
    """PPO clipping: drop where A > 0 and r > 1 + upper, or A < 0 and r < 1 - lower.

    Level token is PPO and GRPO, geometric is GSPO, sequence is RLOO.
    """
    advantages = _advantages(gap)
    bounds = _log_bound(1 - lower), _log_bound(1 + upper)
    if level != "token" and not advantages.a_token:
        low, high = _indicators(_sequence_statistic(gap, level), *bounds)
        return SequenceDrops(low * advantages.negative, high * advantages.positive)
    values = gap.log_ratio if level == "token" else gap.segments.spread(_sequence_statistic(gap, level))
    low, high = _outside(values, *bounds)
    return TokenDrops(low[advantages.at(low) < 0], high[advantages.at(high) > 0])


def dppo(
    gap: GapTokens,
    *,
    divergence: Literal["tv", "kl"],
    lower: float,
    upper: float,
    zero_advantage: Literal["keep", "negative"],
) -> TokenDrops:
    """Divergence PPO: drop tokens whose probability moved away too far, judged by total variation or binary KL(q || p).

    A > 0: p rose by more than upper; A < 0: p fell by more than lower. Source: DPPO; prime-rl (zero_advantage
    negative).
    """
    advantages = _advantages(gap)
    if divergence == "tv":
        low, high = _outside(gap.columns.probability_difference, -lower, upper)
    else:
        far = places_of_divergence(gap, min(lower, upper), binary_variance(gap.numerator))
        moved = binary_kl(gap.denominator[far], gap.numerator[far])
        d = gap.log_ratio[far]
        low, high = far[(moved > lower) & (d < 0)], far[(moved > upper) & (d > 0)]
    signs = advantages.at(low)
    low = low[signs < 0 if zero_advantage == "keep" else signs <= 0]
    return TokenDrops(low, high[advantages.at(high) > 0])


def ipo(gap: GapTokens, *, threshold: float) -> TokenDrops:
    """Drop tokens with |p - q| > threshold, whatever the advantage. Source: prime-rl."""
    return TokenDrops(*_outside(gap.columns.probability_difference, -threshold, threshold))


def m2po(gap: GapTokens, *, cut: Tensor) -> TokenDrops:
    """Drop the tokens of largest d^2, which `cut` [T] 0/1 marks (core.second_moment says which). Source: M2PO."""
    return TokenDrops(places_above(cut, 0.5), no_places(cut))


def trm(gap: GapTokens, *, max: float, mean: float) -> SequenceDrops:
    """Trust-region masking: drop a sequence if its largest k2 > max or its mean k3 > mean. Source: TRM."""
    largest = indicator_above(gap.sequence_abs_max.square() / 2, max)
    average = indicator_above(gap.sequence_k3_sum / gap.segments.counts, mean)
    return _without_sides(torch.maximum(largest, average))


def kpop(gap: GapTokens, *, phi: float) -> TokenDrops:
    """Drop tokens whose larger binary KL, of the two directions, exceeds phi. Source: AReaL."""
    far = places_of_divergence(
        gap, phi, torch.minimum(binary_variance(gap.numerator), binary_variance(gap.denominator))
    )
    a, b = gap.numerator[far], gap.denominator[far]
    return TokenDrops(far[torch.maximum(binary_kl(b, a), binary_kl(a, b)) > phi], far[:0])


def seq_error(gap: GapTokens, *, threshold: float) -> SequenceDrops:
    """Drop a sequence if its mean multiplicative error, mean_t exp|d|, exceeds the threshold. Source: NeMo-RL."""
    return _without_sides(indicator_above(gap.sequence_growth_sum / gap.segments.counts, threshold - 1))


def places_of_divergence(gap: GapTokens, threshold: float, variance: Tensor) -> Tensor:
    """Places [n] of a superset of the tokens whose binary KL from q to p exceeds the threshold.

    KL <= chi2 = (p - q)^2 / (p (1 - p)), which is cheap; `variance` [T] is p (1 - p). The factor leaves room for
    rounding, and equal policies, which are common where both are certain, have no KL at all.
    """
    difference = gap.columns.probability_difference
    room = comparable(0.99 * threshold, difference)
    places = places_above(torch.addcmul(variance * -room, difference, difference), -1e-30)
    return places[difference[places] != 0]


def _clip(values: Tensor, lower: float | None, upper: float | None, offset: float) -> Tensor:
    """clip(values, lower - offset, upper - offset); an absent bound clips nothing."""
    bounds = [None if bound is None else comparable(bound - offset, values) for bound in (lower, upper)]
    return values.clamp(bounds[0], bounds[1])


def _log_bound(ratio: float | None) -> float | None:
    """log of a bound on a ratio; -inf at 0 and less, below which no ratio lies."""
    if ratio is None:
        return None
    return math.log(ratio) if ratio > 0 else -math.inf


def _outside(values: Tensor, lower: float | None, upper: float | None) -> tuple[Tensor, Tensor]:
    """Places of tokens below and above the bounds; an absent bound drops nothing."""
    low = no_places(values) if lower is None else places_below(values, lower)
    high = no_places(values) if upper is None else places_above(values, upper)
    return low, high


def _indicators(values: Tensor, lower: float | None, upper: float | None) -> tuple[Tensor, Tensor]:
    """0/1 floats: values < lower, values > upper; an absent bound marks nothing."""
    low = torch.zeros_like(values) if lower is None else indicator_below(values, lower)
    high = torch.zeros_like(values) if upper is None else indicator_above(values, upper)
    return low, high


def _without_sides(dropped: Tensor) -> SequenceDrops:
    return SequenceDrops(dropped, torch.zeros_like(dropped))


def _token_statistic(gap: GapTokens, statistic: Statistic) -> Tensor:
    """[T]: d, whose bounds are logs, or k1, k2 or k3 of each token."""
    if statistic == "ratio":
        return gap.log_ratio
    if statistic == "k1":
        return -gap.log_ratio
    return gap.columns.log_ratio_square / 2 if statistic == "k2" else gap.columns.k3


def _sequence_statistic(gap: GapTokens, level: Level) -> Tensor:
    """L or D, [N] float64: the log of the importance ratio of a sequence."""
    return gap.sequence_mean if level == "geometric" else gap.sequence_sum


def _sequence_k(gap: GapTokens, statistic: Statistic, reduce: Reduce | None) -> Tensor:
    """One figure a sequence, [N] float64."""
    if reduce == "max":
        return {"k1": -gap.sequence_min, "k2": gap.sequence_abs_max.square() / 2, "k3": gap.sequence_k3_max}[statistic]
    sums = {"k1": -gap.sequence_sum, "k2": gap.sequence_square_sum / 2, "k3": gap.sequence_k3_sum}[statistic]
    return sums / gap.segments.counts if reduce == "mean" else sums


def _advantages(gap: GapTokens) -> Advantages:
    if gap.advantages is None:
        raise ValueError("a sign rule needs advantages")
    return gap.advantages
