"""What rules (methods.rule) decide about gaps' tokens and sequences: the one reading of bands, clips and cuts.

Shapes: T tokens, N sequences, R rules of one kind, n either of T and N. Rules on tokens and rules on whole sequences
are two groups; a rule on whole sequences that looks at an advantage per token decides about tokens, by their own.
Bounds are inclusive to keep; comparisons are made in log space. Within a group, rules that drop come before those that
reweight, whose marks say where r was changed, and after both come rules by another anchor, whose marks are only
compared. Which scores rules compare: core.scores. Sources of the rules: docs/methods.md.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import Final, NamedTuple

import torch
from torch import Tensor

from offpolicy_monitor.core.constants import constant
from offpolicy_monitor.core.divergences import bounded_ratio, ratio_excess
from offpolicy_monitor.core.gap import Gaps, chosen
from offpolicy_monitor.core.scores import sequence_scores, token_scores
from offpolicy_monitor.methods.curve import TOKEN_SCORES
from offpolicy_monitor.methods.rule import Band, Clip, Cut, Drop, Rule

#: Which signs of A, of negative, zero and positive, drop what is below the bands, and what is above, by Drop.signs.
_SIGNS: Final = {
    "any": ((True, True, True), (True, True, True)),
    "apart": ((True, False, False), (False, False, True)),
    "apart_zero_low": ((True, True, False), (False, False, True)),
}


class Anchor(IntEnum):
    """Why a rule is looked at: it is a row's own; or it is compared, by its own anchor or by the other one."""

    OWN = 0
    HERE = 1
    THERE = 2


class Placed(NamedTuple):
    """A rule on a gap, by the gap's index; and the caller's number of it.

    cut: what it takes of all tokens of a request if it is a Cut, [tokens] bool (core.second_moment)
    """

    rule: Rule
    gap: int
    cut: Tensor | None = None
    row: int = 0
    anchor: Anchor = Anchor.OWN

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
    def signs(self) -> str:
        """What the advantage of a token must be to be dropped, as in Drop.signs."""
        return self.rule.signs if isinstance(self.rule, Drop) else "any"

    @property
    def order(self) -> tuple[Anchor, bool]:
        """Where it stands in its group: its anchor, and whether it drops nothing."""
        return self.anchor, isinstance(self.rule, Clip)


@dataclass(frozen=True, eq=False)
class Group:
    """Marks of R rules: [2, R, n] bool, below and above the bounds, or all of them below.

    rules   those that drop, those that reweight, those by another anchor
    whole   whether they decide about whole sequences
    """

    rules: tuple[Placed, ...]
    marks: Tensor
    whole: bool

    @cached_property
    def marked(self) -> Tensor:
        """[R, n] bool."""
        return self.marks[0] | self.marks[1]

    @cached_property
    def drops(self) -> tuple[Placed, ...]:
        """Those that drop what they mark: the first."""
        return tuple(placed for placed in self.rules if placed.order == (Anchor.OWN, False))

    @cached_property
    def clips(self) -> tuple[Placed, ...]:
        """Those that reweight it: the next."""
        return tuple(placed for placed in self.rules if placed.order == (Anchor.OWN, True))

    @property
    def dropped(self) -> Tensor:
        """[drops, n] bool."""
        return self.marked.narrow(0, 0, len(self.drops))


class Decided(NamedTuple):
    """What rules decide: those on tokens, and those on whole sequences; None without any."""

    tokens: Group | None
    whole: Group | None

    @property
    def groups(self) -> tuple[Group, ...]:
        """Those that are there, in this order."""
        return tuple(group for group in self if group is not None)

    @property
    def drops(self) -> tuple[Placed, ...]:
        """All rules that drop, in the order of the groups."""
        return tuple(placed for group in self.groups for placed in group.drops)

    @property
    def clips(self) -> tuple[Placed, ...]:
        """All rules that reweight."""
        return tuple(placed for group in self.groups for placed in group.clips)


def decides_tokens(placed: Placed, gaps: Gaps) -> bool:
    """Whether a rule decides about tokens; ValueError where it looks at advantages that are not there."""
    signed = placed.signs != "any"
    if signed and gaps.advantages is None:
        raise ValueError("a sign rule needs advantages")
    return placed.of_tokens or (signed and gaps.advantages is not None and gaps.advantages.a_token)


def decide(gaps: Gaps, rules: Sequence[Placed], start: int = 0) -> Decided:
    """What rules mark. `start`: where the gaps' tokens begin among those of the cuts.

    Raises ValueError where a rule looks at advantages that are not there, KeyError for a score that is not known.
    """
    ordered = sorted(rules, key=lambda placed: placed.order)
    of_tokens = [placed for placed in ordered if decides_tokens(placed, gaps)]
    whole = [placed for placed in ordered if not decides_tokens(placed, gaps)]
    return Decided(_of_tokens(gaps, of_tokens, start), _of_sequences(gaps, whole))


def _of_tokens(gaps: Gaps, rules: Sequence[Placed], start: int) -> Group | None:
    spread = [placed for placed in rules if not placed.of_tokens]
    cuts = [placed for placed in rules if placed.cut is not None]
    banded = [placed for placed in rules if placed.of_tokens and placed.bands]
    marks: dict[int, Tensor] = {}
    if cuts:
        going = torch.stack([placed.cut for placed in cuts if placed.cut is not None])
        going = going.narrow(1, start, gaps.segments.tokens)
        marks |= _by_rule(cuts, torch.stack([going, torch.zeros_like(going)]))
    groups = None if gaps.advantages is None else gaps.advantages.token_groups
    if spread:
        marks |= _by_rule(spread, _by_sign(spread, gaps.segments.spread(_outside(gaps, spread)), groups))
    if banded:
        marks |= _by_rule(banded, _by_sign(banded, _outside(gaps, banded), groups))
    return _group(gaps.valid, rules, torch.stack([marks[id(placed)] for placed in rules], 1), False) if marks else None


def _of_sequences(gaps: Gaps, rules: Sequence[Placed]) -> Group | None:
    if not rules:
        return None
    groups = None if gaps.advantages is None else gaps.advantages.groups
    marks = _by_sign(rules, _outside(gaps, rules), groups)
    return _group(None if gaps.valid is None else gaps.filled, rules, marks, True)


def _by_rule(rules: Sequence[Placed], marks: Tensor) -> dict[int, Tensor]:
    return dict(zip(map(id, rules), marks.unbind(1), strict=True))


def _group(there: Tensor | None, rules: Sequence[Placed], marks: Tensor, whole: bool) -> Group:
    """Marks on what is there alone: `there` [G, n] bool, or None for all."""
    if there is not None:
        marks = marks & chosen(there, [placed.gap for placed in rules])
    return Group(tuple(rules), marks, whole)


def _by_sign(rules: Sequence[Placed], marks: Tensor, groups: Tensor | None) -> Tensor:
    """Those whose advantage has the sign that the rule looks at: groups [n] int32 of A, None without advantages."""
    if groups is None or all(placed.signs == "any" for placed in rules):
        return marks
    allowed = [[_SIGNS[placed.signs][side] for placed in rules] for side in (0, 1)]
    return marks & constant(allowed, torch.bool, marks.device).index_select(2, groups)


def _outside(gaps: Gaps, rules: Sequence[Placed]) -> Tensor:
    """Below the lower and above the upper bound of any band of each rule, whatever the signs: [2, R, n] bool."""
    bands = [(number, band) for number, placed in enumerate(rules) for band in placed.bands]
    scores_of = token_scores if rules[0].of_tokens else sequence_scores
    scores = scores_of(gaps, [(rules[number].gap, band.score) for number, band in bands])
    low, high = _limits(scores, [(band.lower, band.upper) for _, band in bands])
    marks = torch.stack([scores < low, scores > high])
    owners = [number for number, _ in bands]
    if len(owners) == len(rules):
        return marks
    last = [len(owners) - 1 - owners[::-1].index(number) for number in range(len(rules))]
    return _rows(marks, [owners.index(number) for number in range(len(rules))]) | _rows(marks, last)


def _rows(marks: Tensor, numbers: Sequence[int]) -> Tensor:
    return torch.stack([marks.select(1, number) for number in numbers], 1)


def _limits(scores: Tensor, bounds: Sequence[tuple[float, ...]]) -> tuple[Tensor, ...]:
    """Bounds of R scores, [R, 1] each, within what their dtype can hold: beyond it each comparison comes out alike."""
    largest = torch.finfo(scores.dtype).max
    held = [[bound if math.isinf(bound) else max(-largest, min(largest, bound)) for bound in row] for row in bounds]
    return constant(held, scores.dtype, scores.device)[:, :, None].unbind(1)


def clip_weights(gaps: Gaps, group: Group) -> tuple[Tensor, Tensor]:
    """What truncations multiply the loss with, clip(r, lower, upper), and the same less 1, with its digits near 1.

    Of `group.clips`, of which there is one at least: [clips, T] in the dtype of the log-probs, or [clips, N] float64
    for whole sequences. An absent bound clips nothing. Source: Yao et al., https://fengyao.notion.site/off-policy-rl
    """
    if group.whole:
        scores = sequence_scores(gaps, [(placed.gap, placed.bands[0].score) for placed in group.clips])
        ratio, excess = bounded_ratio(scores), ratio_excess(scores)
    else:
        places = [placed.gap for placed in group.clips]
        ratio, excess = chosen(gaps.columns.ratio, places), chosen(gaps.columns.excess, places)
    pairs = [(placed.rule.lower, placed.rule.upper) for placed in group.clips if isinstance(placed.rule, Clip)]
    open_pairs = [(-math.inf if low is None else low, math.inf if high is None else high) for low, high in pairs]
    low, high, low_excess, high_excess = _limits(ratio, [(*pair, *(end - 1 for end in pair)) for pair in open_pairs])
    return ratio.clamp(low, high), excess.clamp(low_excess, high_excess)
