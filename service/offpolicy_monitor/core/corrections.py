"""What rules (methods.rule) decide about gaps' tokens and sequences: the one reading of bands, clips and cuts, for all.

Shapes: T tokens, N sequences, R rules of one kind. Rules on tokens and rules on whole sequences are two groups; a rule
on whole sequences that looks at an advantage per token decides about tokens, by their own. Bounds are inclusive to
keep; comparisons are made in log space. Within a group, rules that drop come before those that reweight, whose marks
say where r was changed. Which scores rules compare: core.scores.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

import torch
from torch import Tensor

from offpolicy_monitor.core.advantages import Sign
from offpolicy_monitor.core.divergences import bounded_ratio, ratio_excess
from offpolicy_monitor.core.gap import Gaps, chosen
from offpolicy_monitor.core.scores import sequence_scores, token_scores
from offpolicy_monitor.core.second_moment import Cut as Found
from offpolicy_monitor.core.second_moment import beyond
from offpolicy_monitor.methods.curve import TOKEN_SCORES
from offpolicy_monitor.methods.rule import Band, Clip, Cut, Drop, Rule

#: What an advantage must be for a token below the bands, and for one above them, by Drop.signs.
_SIGNS: Final = {
    "any": (Sign.ANY, Sign.ANY),
    "apart": (Sign.NEGATIVE, Sign.POSITIVE),
    "apart_zero_low": (Sign.NOT_POSITIVE, Sign.POSITIVE),
}


class Placed(NamedTuple):
    """A rule on a gap, by the gap's place; what was found for it if it is a Cut; and the caller's number of it."""

    rule: Rule
    gap: int
    cut: Found | None = None
    row: int = 0

    @property
    def bands(self) -> tuple[Band, ...]:
        """What its scores must lie in."""
        if isinstance(self.rule, Cut):
            return ()
        return (self.rule.band,) if isinstance(self.rule, Clip) else self.rule.bands

    @property
    def of_tokens(self) -> bool:
        """Whether what it compares is of tokens."""
        return all(band.score in TOKEN_SCORES for band in self.bands)

    @property
    def signs(self) -> tuple[Sign, Sign]:
        """What the advantage of a token must be to be dropped below the bands, and above them."""
        return _SIGNS[self.rule.signs] if isinstance(self.rule, Drop) else _SIGNS["any"]

    @property
    def reweights(self) -> bool:
        """Whether it drops nothing."""
        return isinstance(self.rule, Clip)


@dataclass(frozen=True, eq=False)
class Group:
    """Marks of R rules: [R, T] bool, or [R, N] for whole sequences; below and above the bounds, or all in `low`.

    rules   the first `drops` of them drop what they mark, the others reweight it
    """

    rules: tuple[Placed, ...]
    drops: int
    low: Tensor
    high: Tensor

    @cached_property
    def marked(self) -> Tensor:
        """[R, ...] bool."""
        return self.low | self.high

    @property
    def dropped(self) -> Tensor:
        """[drops, ...] bool."""
        return self.marked.narrow(0, 0, self.drops)

    @property
    def gaps(self) -> tuple[int, ...]:
        """The gap of each rule."""
        return tuple(placed.gap for placed in self.rules)

    @property
    def rows(self) -> tuple[int, ...]:
        """The caller's number of each rule."""
        return tuple(placed.row for placed in self.rules)


def decides_tokens(placed: Placed, gaps: Gaps) -> bool:
    """Whether a rule decides about tokens; ValueError where it looks at advantages that are not there."""
    signed = placed.signs != _SIGNS["any"]
    if signed and gaps.advantages is None:
        raise ValueError("a sign rule needs advantages")
    return placed.of_tokens or (signed and gaps.advantages is not None and gaps.advantages.a_token)


def decide_tokens(gaps: Gaps, rules: Sequence[Placed], start: int = 0) -> Group | None:
    """What rules on tokens mark; None without rules. `start`: where the gaps' tokens begin among those of the cuts."""
    spread = [placed for placed in rules if not placed.of_tokens]
    cuts = [placed for placed in rules if placed.cut is not None]
    banded = sorted((placed for placed in rules if placed.of_tokens and placed.bands), key=_reweights)
    parts: list[tuple[Tensor, Tensor]] = []
    if spread:
        low, high = (gaps.segments.spread(side) for side in _outside(gaps, spread))
        parts.append(_by_sign(spread, low, high, _token_signs(gaps)))
    if cuts:
        sizes = torch.stack([gaps.columns.log_ratio_abs.select(0, placed.gap) for placed in cuts])
        going = beyond([placed.cut for placed in cuts if placed.cut is not None], sizes, start)
        parts.append((going, torch.zeros_like(going)))
    if banded:
        parts.append(_by_sign(banded, *_outside(gaps, banded), _token_signs(gaps)))
    if not parts:
        return None
    low, high = (torch.cat(side) for side in zip(*parts, strict=True))
    return _group(gaps.valid, (*spread, *cuts, *banded), low, high)


def decide_sequences(gaps: Gaps, rules: Sequence[Placed]) -> Group | None:
    """What rules on whole sequences mark; None without rules."""
    if not rules:
        return None
    ordered = tuple(sorted(rules, key=_reweights))
    low, high = _by_sign(ordered, *_outside(gaps, ordered), None if gaps.advantages is None else gaps.advantages.signs)
    return _group(None if gaps.valid is None else gaps.filled, ordered, low, high)


def _token_signs(gaps: Gaps) -> Tensor | None:
    return None if gaps.advantages is None else gaps.advantages.token_signs


def _reweights(placed: Placed) -> bool:
    return placed.reweights


def _group(there: Tensor | None, rules: tuple[Placed, ...], low: Tensor, high: Tensor) -> Group:
    """Marks on what is there alone: `there` [G, ...] bool, or None for all."""
    if there is not None:
        mine = chosen(there, [placed.gap for placed in rules])
        low, high = low & mine, high & mine
    return Group(rules, sum(not placed.reweights for placed in rules), low, high)


def _by_sign(rules: Sequence[Placed], low: Tensor, high: Tensor, signs: Tensor | None) -> tuple[Tensor, Tensor]:
    """Marks of those whose advantage has the sign that the rule looks at: signs [4, ...] bool, None without any."""
    if signs is None or all(placed.signs == _SIGNS["any"] for placed in rules):
        return low, high
    return (
        low & chosen(signs, [placed.signs[0] for placed in rules]),
        high & chosen(signs, [placed.signs[1] for placed in rules]),
    )


def _outside(gaps: Gaps, rules: Sequence[Placed]) -> tuple[Tensor, Tensor]:
    """Below the lower and above the upper bound of any band of each rule, whatever the signs: [R, T] or [R, N] bool."""
    bands = [(number, band) for number, placed in enumerate(rules) for band in placed.bands]
    scores = _scores(gaps, [(rules[number].gap, band.score) for number, band in bands])
    largest = torch.finfo(scores.dtype).max
    bounds = [[_within(band.lower, largest), _within(band.upper, largest)] for _, band in bands]
    lower, upper = torch.tensor(bounds, dtype=scores.dtype, device=scores.device)[:, :, None].unbind(1)
    low, high = scores < lower, scores > upper
    owners = [number for number, _ in bands]
    if len(owners) == len(rules):
        return low, high
    first = [owners.index(number) for number in range(len(rules))]
    last = [len(owners) - 1 - owners[::-1].index(number) for number in range(len(rules))]
    return chosen(low, first) | chosen(low, last), chosen(high, first) | chosen(high, last)


def _scores(gaps: Gaps, wanted: Sequence[tuple[int, str]]) -> Tensor:
    """Scores of gaps by name, of tokens in the dtype of the log-probs [R, T], of sequences in float64 [R, N]."""
    of_tokens = all(name in TOKEN_SCORES for _, name in wanted)
    return (token_scores if of_tokens else sequence_scores)(gaps, wanted)


def _within(bound: float, largest: float) -> float:
    """The bound, within what the dtype of the scores can hold: beyond it every comparison comes out the same."""
    return bound if math.isinf(bound) else max(-largest, min(largest, bound))


def token_weights(gaps: Gaps, group: Group) -> tuple[Tensor, Tensor]:
    """What truncations per token multiply the loss with, and the same less 1: [R, T] in the dtype of the log-probs."""
    rules = group.rules[group.drops :]
    return _truncated(
        torch.stack([gaps.columns.ratio.select(0, placed.gap) for placed in rules]),
        torch.stack([gaps.columns.excess.select(0, placed.gap) for placed in rules]),
        rules,
    )


def sequence_weights(gaps: Gaps, group: Group) -> tuple[Tensor, Tensor]:
    """The same of truncations of whole sequences: [R, N] float64."""
    rules = group.rules[group.drops :]
    scores = _scores(gaps, [(placed.gap, placed.bands[0].score) for placed in rules])
    return _truncated(bounded_ratio(scores), ratio_excess(scores), rules)


def _truncated(ratio: Tensor, excess: Tensor, rules: Sequence[Placed]) -> tuple[Tensor, Tensor]:
    """clip(r, lower, upper), and clip(r - 1, lower - 1, upper - 1); an absent bound clips nothing."""
    largest = torch.finfo(ratio.dtype).max
    clips = [placed.rule for placed in rules if isinstance(placed.rule, Clip)]
    bounds = [
        [
            absent if bound is None else _within(bound - less, largest)
            for less in (0.0, 1.0)
            for bound, absent in ((clip.lower, -math.inf), (clip.upper, math.inf))
        ]
        for clip in clips
    ]
    lower, upper, low, high = torch.tensor(bounds, dtype=ratio.dtype, device=ratio.device)[:, :, None].unbind(1)
    return ratio.clamp(lower, upper), excess.clamp(low, high)
