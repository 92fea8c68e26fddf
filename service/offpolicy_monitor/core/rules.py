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
from offpolicy_monitor.core.decision import Decision
from offpolicy_monitor.core.divergences import binary_kl, indicator_above, indicator_below, ratio_excess
from offpolicy_monitor.core.gap import GapTokens

Level = Literal["token", "sequence", "geometric"]
Statistic = Literal["ratio", "k1", "k2", "k3"]
Reduce = Literal["mean", "max", "sum"]


def log_statistic(gap: GapTokens, level: Level) -> Tensor:
    """d [T], L [N] or D [N]: the log of the importance ratio at a level, nats."""
    return {
        "token": lambda: gap.log_ratio,
        "geometric": lambda: gap.sequence_mean,
        "sequence": lambda: gap.sequence_sum,
    }[level]()


def log_bound(ratio: float) -> float:
    """log of a bound on a ratio; -inf at 0, below which no ratio lies."""
    return math.log(ratio) if ratio > 0 else -math.inf


def _outside(values: Tensor, lower: float | None, upper: float | None) -> tuple[Tensor, Tensor]:
    """0/1 floats: values < lower, values > upper; an absent bound drops nothing."""
    low = torch.zeros_like(values) if lower is None else indicator_below(values, lower)
    high = torch.zeros_like(values) if upper is None else indicator_above(values, upper)
    return low, high


def _optional_log(bound: float | None) -> float | None:
    return None if bound is None else log_bound(bound)


def truncate(gap: GapTokens, *, level: Level, lower: float | None, upper: float | None) -> Decision:
    """Truncated importance sampling: weight = clip(r, lower, upper). Source: Yao et al., verl, slime."""
    statistic = log_statistic(gap, level)
    low, high = _outside(statistic, _optional_log(lower), _optional_log(upper))
    weights = (ratio_excess(statistic) + 1).clamp(lower, upper)
    return Decision(level == "token", weights=weights, truncated=low + high)


def cispo(gap: GapTokens, *, lower: float, upper: float) -> Decision:
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
) -> Decision:
    """Masked importance sampling: drop where the statistic at the level leaves [lower, upper].

    `ratio` compares r at the level; k1 = -d, k2 = d^2 / 2, k3 = expm1(d) - d compare a token's value, or one figure a
    sequence made by `reduce`. Source: IcePop, Liu et al. (MIS), verl, slime, NeMo-RL, SkyRL.
    """
    if statistic == "ratio":
        sides = _outside(log_statistic(gap, level), _optional_log(lower), _optional_log(upper))
        return Decision.of_sides(level == "token", *sides)
    values = _token_k(gap, statistic) if level == "token" else _sequence_k(gap, statistic, reduce)
    low, high = _outside(values, lower, upper)
    return Decision(level == "token", low + high)


def _token_k(gap: GapTokens, statistic: Statistic) -> Tensor:
    if statistic == "k1":
        return -gap.log_ratio
    return gap.log_ratio_square / 2 if statistic == "k2" else gap.k3.forward


def _sequence_k(gap: GapTokens, statistic: Statistic, reduce: Reduce | None) -> Tensor:
    """One figure a sequence, [N] float64."""
    if reduce == "max":
        return {"k1": -gap.sequence_min, "k2": gap.sequence_abs_max.square() / 2, "k3": gap.sequence_k3_max}[statistic]
    sums = {"k1": -gap.sequence_sum, "k2": gap.sequence_square_sum / 2, "k3": gap.sequence_k3_sum}[statistic]
    return sums / gap.segments.counts if reduce == "mean" else sums


def veto(gap: GapTokens, *, lower: float | None, upper: float | None) -> Decision:
    """Drop a sequence if any token's ratio is below lower or above upper. Source: slime, verl 0.7."""
    low, high = torch.zeros_like(gap.sequence_min), torch.zeros_like(gap.sequence_max)
    if lower is not None:
        low = indicator_below(gap.sequence_min, log_bound(lower))
    if upper is not None:
        high = indicator_above(gap.sequence_max, log_bound(upper))
    return Decision(False, torch.maximum(low, high))


def opsm(gap: GapTokens, *, delta: float) -> Decision:
    """Off-policy sequence masking: drop where A < 0 and -L > delta. Source: DeepSeek-V3.2."""
    advantages = _advantages(gap)
    far = indicator_above(-gap.sequence_mean, delta)
    if advantages.a_token:
        return Decision(True, gap.segments.spread(far) * advantages.negative)
    return Decision(False, far * advantages.negative)


def ppo_clip(gap: GapTokens, *, level: Level, lower: float, upper: float) -> Decision:
    """PPO clipping: drop where A > 0 and r > 1 + upper, or A < 0 and r < 1 - lower.

    Level token is PPO and GRPO, geometric is GSPO, sequence is RLOO.
    """
    advantages = _advantages(gap)
    low, high = _outside(log_statistic(gap, level), log_bound(1 - lower), log_bound(1 + upper))
    a_token = level == "token" or advantages.a_token
    if a_token:
        if level != "token":
            low, high = gap.segments.spread(low), gap.segments.spread(high)
        return Decision.of_sides(True, low * advantages.negative_tokens, high * advantages.positive_tokens)
    return Decision.of_sides(False, low * advantages.negative, high * advantages.positive)


def dppo(
    gap: GapTokens,
    *,
    divergence: Literal["tv", "kl"],
    lower: float,
    upper: float,
    zero_advantage: Literal["keep", "negative"],
) -> Decision:
    """Divergence PPO: drop tokens whose probability moved away too far, judged by total variation or binary KL(q || p).

    A > 0: p rose by more than upper; A < 0: p fell by more than lower. Source: DPPO; prime-rl (zero_advantage
    negative).
    """
    advantages = _advantages(gap)
    negative = advantages.negative_tokens if zero_advantage == "keep" else 1 - advantages.positive_tokens
    if divergence == "tv":
        difference = gap.signed_probability_difference
        low, high = _outside(difference, -lower, upper)
    else:
        moved = binary_kl(gap.denominator.values, gap.numerator.values)
        low = indicator_above(moved, lower) * indicator_below(gap.log_ratio, 0.0)
        high = indicator_above(moved, upper) * indicator_above(gap.log_ratio, 0.0)
    return Decision.of_sides(True, low * negative, high * advantages.positive_tokens)


def ipo(gap: GapTokens, *, threshold: float) -> Decision:
    """Drop tokens with |p - q| > threshold, whatever the advantage. Source: prime-rl."""
    return Decision.of_sides(True, *_outside(gap.signed_probability_difference, -threshold, threshold))


def m2po(gap: GapTokens, *, cut: Tensor) -> Decision:
    """Drop the tokens of largest d^2, which `cut` [T] 0/1 marks (see second_moment_cut). Source: M2PO."""
    return Decision(True, cut)


def second_moment_cut(log_ratio: Tensor, threshold: float) -> Tensor | None:
    """The fewest tokens of largest d^2 whose removal brings the mean d^2 of the rest to the threshold or below.

    log_ratio [T]; gives [T] 0/1 of its dtype, or None where nothing needs to go. Among equals the earlier token goes
    first. Sorts all tokens together, so it takes a whole request, not a part of it.
    """
    square = log_ratio.double().square()
    if not len(square) or float(square.mean()) <= threshold:
        return None
    order = len(square) - 1 - torch.argsort(square.flip(0), stable=True)
    counts = torch.arange(1, len(square) + 1, device=square.device)
    fits = torch.cumsum(square[order], 0) <= threshold * counts
    kept = int(torch.nonzero(fits).amax()) + 1 if bool(fits.any()) else 0
    cut = torch.zeros_like(log_ratio)
    cut[order[kept:]] = 1.0
    return cut


def trm(gap: GapTokens, *, max: float, mean: float) -> Decision:
    """Trust-region masking: drop a sequence if its largest k2 > max or its mean k3 > mean. Source: TRM."""
    largest = indicator_above(gap.sequence_abs_max.square() / 2, max)
    average = indicator_above(gap.sequence_k3_sum / gap.segments.counts, mean)
    return Decision(False, torch.maximum(largest, average))


def kpop(gap: GapTokens, *, phi: float) -> Decision:
    """Drop tokens whose larger binary KL, of the two directions, exceeds phi. Source: AReaL."""
    a, b = gap.numerator.values, gap.denominator.values
    return Decision(True, indicator_above(torch.maximum(binary_kl(b, a), binary_kl(a, b)), phi))


def seq_error(gap: GapTokens, *, threshold: float) -> Decision:
    """Drop a sequence if its mean multiplicative error, mean_t exp|d|, exceeds the threshold. Source: NeMo-RL."""
    return Decision(False, indicator_above(gap.sequence_growth_sum / gap.segments.counts, threshold - 1))


def _advantages(gap: GapTokens) -> Advantages:
    if gap.advantages is None:
        raise ValueError("a sign rule needs advantages")
    return gap.advantages
