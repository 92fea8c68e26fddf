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
from offpolicy_monitor.core.divergences import ratio_and_excess
from offpolicy_monitor.core.gap import Gaps, chosen
from offpolicy_monitor.core.outward import OUTWARD, outward_score
from offpolicy_monitor.core.scores import Score, sequence_scores, token_scores
from offpolicy_monitor.core.second_moment import Beyond
from offpolicy_monitor.methods.curve import TOKEN_SCORES
from offpolicy_monitor.methods.rule import DROPPED_SIGNS, Band, Clip, Cut, Drop, Rule, Signs

#: [signs, 2, 3]: whether A negative, zero or positive drops what is above the bands, and what is below.
_SIGNS: Final = [[[sign in signs for sign in range(3)] for signs in sides] for sides in DROPPED_SIGNS.values()]
_SIGN_INDEX: Final = {signs: index for index, signs in enumerate(DROPPED_SIGNS)}
#: What stands for the band of a Cut.
_TAKEN: Final = Band("taken", upper=0.0)


class Anchor(IntEnum):
    """Why a rule is looked at: it is a row's own; or it is compared, by its own anchor or by the other one."""

    OWN = 0
    HERE = 1
    THERE = 2


class Placed(NamedTuple):
    """A rule on a gap, by the gap's index; and the caller's number of it.

    cut: what it takes of all tokens of a request if it is a Cut (core.second_moment)
    """

    rule: Rule
    gap: int
    cut: Beyond | None = None
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
    def signs(self) -> Signs:
        """What the advantage of a token must be to be dropped, as in Drop.signs."""
        return self.rule.signs if isinstance(self.rule, Drop) else "any"

    @property
    def order(self) -> tuple[Anchor, bool]:
        """Where it stands in its group: its anchor, and whether it drops nothing."""
        return self.anchor, isinstance(self.rule, Clip)


def gaps_of(rules: Sequence[Placed]) -> list[int]:
    """The gap of each rule, by its index."""
    return [placed.gap for placed in rules]


@dataclass(frozen=True, eq=False)
class Group:
    """Marks of R rules: [2, R, n] bool, what is out of bounds, and of that what is below a lower one.

    rules   those that drop, those that reweight, those by another anchor
    whole   whether they decide about whole sequences
    """

    rules: tuple[Placed, ...]
    marks: Tensor
    whole: bool

    @property
    def marked(self) -> Tensor:
        """[R, n] bool: what is out of bounds."""
        return self.marks[0]

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
    return placed.of_tokens or (signed and gaps.advantages is not None and gaps.advantages.per_token)


def decide(gaps: Gaps, rules: Sequence[Placed], start: int = 0) -> Decided:
    """What rules mark. `start`: where the gaps' tokens begin among those of the request.

    Raises ValueError where a rule looks at advantages that are not there, KeyError for a score that is not known.
    """
    ordered = sorted(rules, key=lambda placed: placed.order)
    of_tokens = [placed for placed in ordered if decides_tokens(placed, gaps)]
    whole = [placed for placed in ordered if not decides_tokens(placed, gaps)]
    return Decided(_of_tokens(gaps, of_tokens, start), _of_sequences(gaps, whole))


def _of_tokens(gaps: Gaps, rules: Sequence[Placed], start: int) -> Group | None:
    if not rules:
        return None
    groups = None if gaps.advantages is None else gaps.advantages.token_groups
    own = [placed for placed in rules if placed.of_tokens]
    spread = [placed for placed in rules if not placed.of_tokens]
    parts = [_outside(gaps, own, start)] if own else []
    if spread:
        parts.append(gaps.segments.spread(_outside(gaps, spread)))
    marks = parts[0]
    if own and spread:
        marks_of = dict(zip(map(id, (*own, *spread)), torch.cat(parts, 1).unbind(1), strict=True))
        marks = torch.stack([marks_of[id(placed)] for placed in rules], 1)
    return _group(gaps.valid, rules, _by_sign(rules, marks, groups), False)


def _of_sequences(gaps: Gaps, rules: Sequence[Placed]) -> Group | None:
    if not rules:
        return None
    groups = None if gaps.advantages is None else gaps.advantages.groups
    marks = _by_sign(rules, _outside(gaps, rules), groups)
    return _group(None if gaps.valid is None else gaps.filled, rules, marks, True)


def _group(there: Tensor | None, rules: Sequence[Placed], marks: Tensor, whole: bool) -> Group:
    """Of marks above and below, [2, R, n], those on what is there: `there` [G, n] bool, or None for all."""
    if there is not None:
        marks = marks & chosen(there, gaps_of(rules))
    marks[0].logical_or_(marks[1])
    return Group(tuple(rules), marks, whole)


def _by_sign(rules: Sequence[Placed], marks: Tensor, groups: Tensor | None) -> Tensor:
    """Those whose advantage has the sign that the rule looks at: groups [n] int32 of A, None without advantages."""
    if groups is None or all(placed.signs == "any" for placed in rules):
        return marks
    allowed = constant(_SIGNS, torch.bool, marks.device).index_select(2, groups).unbind()
    return marks & torch.stack([allowed[_SIGN_INDEX[placed.signs]] for placed in rules], 1)


def _outside(gaps: Gaps, rules: Sequence[Placed], start: int = 0) -> Tensor:
    """Above the upper and below the lower bound of any band of each rule, whatever the signs: [2, R, n] bool.

    What a Cut takes is 1, and above 0.
    """
    bands = [(number, band) for number, placed in enumerate(rules) for band in placed.bands[:1] or (_TAKEN,)]
    further = [(number, band) for number, placed in enumerate(rules) for band in placed.bands[1:]]
    wanted = [
        Score(rules[number].gap, band.score, band.given) for number, band in (*bands, *further) if band is not _TAKEN
    ]
    found = iter((token_scores if rules[0].of_tokens else sequence_scores)(gaps, wanted))
    scores = torch.stack(
        [_cut(rules[n], gaps, start) if band is _TAKEN else next(found) for n, band in (*bands, *further)]
    )
    low, high = _limits(scores, [(band.lower, band.upper) for _, band in (*bands, *further)])
    marks = torch.empty((2, *scores.shape), dtype=torch.bool, device=scores.device)
    torch.gt(scores, high, out=marks[0])
    torch.lt(scores, low, out=marks[1])
    for index, (number, _) in enumerate(further, len(rules)):
        marks.select(1, number).logical_or_(marks.select(1, index))
    return marks.narrow(1, 0, len(rules))


def _cut(placed: Placed, gaps: Gaps, start: int) -> Tensor:
    if placed.cut is None:
        raise ValueError("a rule that is a cut needs what it cuts")
    assert isinstance(placed.rule, Cut)
    magnitudes = gaps.columns.log_ratio_abs.select(0, placed.gap)
    if placed.rule.score in OUTWARD:
        magnitudes = outward_score(gaps, placed.gap, placed.rule.score)
    return placed.cut.marks(magnitudes, start).to(gaps.policies.dtype)


def _limits(scores: Tensor, bounds: Sequence[tuple[float, ...]]) -> tuple[Tensor, ...]:
    """Bounds of R scores, [R, 1] each, within what their dtype can hold: beyond it each comparison comes out alike."""
    largest = torch.finfo(scores.dtype).max
    held = [[bound if math.isinf(bound) else max(-largest, min(largest, bound)) for bound in row] for row in bounds]
    return constant(held, scores.dtype, scores.device)[:, :, None].unbind(1)


def clip_weights(gaps: Gaps, group: Group) -> Tensor:
    """What truncations multiply the loss with, clip(r, lower, upper), and the same less 1, with its digits near 1.

    Of `group.clips`, of which there is one at least: [2, clips, T], or [2, clips, N] for whole sequences, float64. An
    absent bound clips nothing, and outside of what a rule keeps the weight is 0. Source: Yao et al.,
    https://fengyao.notion.site/off-policy-rl
    """
    gap_indices = gaps_of(group.clips)
    if group.whole:
        names = [placed.bands[0].score for placed in group.clips]
        scores = torch.stack(sequence_scores(gaps, list(map(Score, gap_indices, names))))
        ratios = ratio_and_excess(scores)
    else:
        ratios = torch.stack(
            [column.select(0, gap) for column in (gaps.columns.ratio, gaps.columns.excess) for gap in gap_indices]
        )
        ratios = ratios.view(2, len(gap_indices), gaps.segments.tokens)
    pairs = [(placed.rule.lower, placed.rule.upper) for placed in group.clips if isinstance(placed.rule, Clip)]
    ends = [(-math.inf if low is None else low, math.inf if high is None else high) for low, high in pairs]
    low, high = _limits(ratios, [*ends, *((low - 1, high - 1) for low, high in ends)])
    return _kept_weights(gaps, group, ratios.clamp(low.view(2, -1, 1), high.view(2, -1, 1)))


def _kept_weights(gaps: Gaps, group: Group, weights: Tensor) -> Tensor:
    """Weights [2, clips, n], 0 and -1 where a rule does not keep what it weighs."""
    bounded = [placed.rule.within for placed in group.clips if isinstance(placed.rule, Clip)]
    bands = [(placed.gap, band) for placed, band in zip(group.clips, bounded, strict=True) if band is not None]
    if not bands:
        return weights
    scores = iter(sequence_scores(gaps, [Score(gap, band.score, band.given) for gap, band in bands]))
    nothing = constant([0.0, -1.0], weights.dtype, weights.device)[:, None]
    found = []
    for own, band in zip(weights.unbind(1), bounded, strict=True):
        if band is not None:
            score = next(scores)
            own = torch.where((score < band.lower) | (score > band.upper), nothing, own)
        found.append(own)
    return torch.stack(found, 1)
