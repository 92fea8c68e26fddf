"""What a rule (methods.rule) decides about a gap's tokens: the one reading of bands and clips, for every method.

Shapes: T valid tokens, N sequences. Bounds are inclusive to keep; comparisons are made in log space. A band that looks
at the sign of A looks at each token's own advantage, also where its score is a sequence's. Which scores rules compare:
core.scores. A Cut needs all tokens of a request: core.second_moment.
"""

import math
from collections.abc import Iterable
from functools import reduce

import torch
from torch import Tensor

from offpolicy_monitor.core.advantages import Advantages
from offpolicy_monitor.core.decision import Decision, SequenceDrops, TokenDrops, Weights
from offpolicy_monitor.core.divergences import bounded_ratio, comparable, indicator_above, indicator_below, ratio_excess
from offpolicy_monitor.core.gap import GapTokens
from offpolicy_monitor.core.scores import Scores
from offpolicy_monitor.core.select import no_places, places_above, places_below
from offpolicy_monitor.methods.curve import TOKEN_SCORES
from offpolicy_monitor.methods.rule import Band, Clip, Drop


def decide(gap: GapTokens, rule: Drop | Clip) -> Decision:
    """The decision of a rule. Raises ValueError where it looks at advantages and the gap has none."""
    if isinstance(rule, Clip):
        return _weights(gap, rule)
    return _of_tokens(gap, rule) if rule.of_tokens else _of_sequences(gap, rule)


def _weights(gap: GapTokens, rule: Clip) -> Weights:
    """weight = clip(r, lower, upper) of each token, or of each sequence."""
    a_token = rule.band.score in TOKEN_SCORES
    scores = Scores(gap)
    log_ratio = scores.of_tokens(rule.band.score) if a_token else scores.of_sequences(rule.band.score)
    ratio = gap.columns.ratio if a_token else bounded_ratio(log_ratio)
    excess = gap.columns.excess if a_token else ratio_excess(log_ratio)
    low, high = indicator_below(log_ratio, rule.band.lower), indicator_above(log_ratio, rule.band.upper)
    return Weights(_clip(ratio, rule, 0.0), _clip(excess, rule, 1.0), low + high, a_token)


def _clip(values: Tensor, rule: Clip, offset: float) -> Tensor:
    """clip(values, lower - offset, upper - offset); an absent bound clips nothing."""
    bounds = [None if bound is None else comparable(bound - offset, values) for bound in (rule.lower, rule.upper)]
    return values if bounds == [None, None] else values.clamp(bounds[0], bounds[1])


def _of_tokens(gap: GapTokens, rule: Drop) -> TokenDrops:
    scores = Scores(gap, least_kl=min(min(-band.lower, band.upper) for band in rule.bands))
    parts = [_outside(scores.of_tokens(band.score), band) for band in rule.bands]
    low, high = (torch.cat(side) if len(side) > 1 else side[0] for side in zip(*parts, strict=True))
    return _by_sign(gap, rule, low, high)


def _of_sequences(gap: GapTokens, rule: Drop) -> TokenDrops | SequenceDrops:
    values = [Scores(gap).of_sequences(band.score) for band in rule.bands]
    if rule.signs != "any" and _advantages(gap).a_token:
        (band,), (value,) = rule.bands, values
        return _by_sign(gap, rule, *_outside(gap.segments.spread(value), band))
    low = _any(indicator_below(value, band.lower) for value, band in zip(values, rule.bands, strict=True))
    high = _any(indicator_above(value, band.upper) for value, band in zip(values, rule.bands, strict=True))
    if rule.signs != "any":
        advantages = _advantages(gap)
        low = low * (1 - advantages.positive if rule.signs == "apart_zero_low" else advantages.negative)
        high = high * advantages.positive
    return SequenceDrops(low, high) if rule.sides else SequenceDrops(torch.maximum(low, high), torch.zeros_like(low))


def _by_sign(gap: GapTokens, rule: Drop, low: Tensor, high: Tensor) -> TokenDrops:
    """Of tokens below and above the bands, those that the rule drops for the sign of their advantage."""
    if rule.signs == "any":
        return TokenDrops(low, high)
    signs = _advantages(gap).at(low)
    low = low[signs <= 0 if rule.signs == "apart_zero_low" else signs < 0]
    return TokenDrops(low, high[_advantages(gap).at(high) > 0])


def _outside(values: Tensor, band: Band) -> tuple[Tensor, Tensor]:
    """Places of tokens below and above the band; an absent bound is not looked for."""
    low = no_places(values) if band.lower == -math.inf else places_below(values, band.lower)
    high = no_places(values) if band.upper == math.inf else places_above(values, band.upper)
    return low, high


def _any(parts: Iterable[Tensor]) -> Tensor:
    return reduce(torch.maximum, parts)


def _advantages(gap: GapTokens) -> Advantages:
    if gap.advantages is None:
        raise ValueError("a sign rule needs advantages")
    return gap.advantages
