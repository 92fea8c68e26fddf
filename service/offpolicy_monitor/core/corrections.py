"""What rules (methods.rule) decide about gaps' tokens and sequences: the one reading of bands, clips and cuts.

Shapes: T tokens, N sequences, R rules of one kind, n either of T and N. Rules on tokens and rules on whole sequences
are two groups; a rule on whole sequences that looks at an advantage per token decides about tokens, by their own.
Bounds are inclusive to keep; comparisons are made in log space. Within a group, rules that drop come before those that
reweight, whose marks say where r was changed, and after both come rules by another anchor, whose marks are only
compared. Which scores rules compare: core.scores. Sources of the rules: docs/methods.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import Final, NamedTuple

import torch
from torch import Tensor

from offpolicy_monitor.core.checks import DOUBLE, MARKS, check
from offpolicy_monitor.core.device import constant
from offpolicy_monitor.core.divergences import ratio_and_excess
from offpolicy_monitor.core.gap import Gaps, chosen
from offpolicy_monitor.core.outward import OUTWARD, moves_outward
from offpolicy_monitor.core.scores import Score, sequence_scores, token_scores
from offpolicy_monitor.core.second_moment import Beyond
from offpolicy_monitor.methods.rule import DROPPED_SIGNS, Band, Clip, Cut, Rule, decides_tokens

#: Of each kind of signs, for what is above the bands and what is below: whether A negative, zero or positive drops it.
_SIGNS: Final = {
    kind: tuple([sign in signs for sign in range(3)] for signs in sides) for kind, sides in DROPPED_SIGNS.items()
}
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
    def order(self) -> tuple[Anchor, bool]:
        """Where it stands in its group: its anchor, and whether it drops nothing."""
        return self.anchor, isinstance(self.rule, Clip)

    def score(self, band: Band) -> Score:
        """What must lie in a band of it."""
        return Score(self.gap, band.score, band.given)


def gaps_of(rules: Sequence[Placed]) -> list[int]:
    """The gap of each rule, by its index."""
    return [placed.gap for placed in rules]


@dataclass(frozen=True, eq=False)
class Group:
    """Marks of R rules: [2, R, n] bool, what is out of bounds, and of that what is below a lower one.

    Raises ValueError for marks of another shape, TypeError for another dtype.

    rules   those that drop, those that reweight, those by another anchor
    valid   [R, n] bool: what each rule may mark; None for all
    counts  [R, N] float64: the tokens of each sequence that a rule on whole sequences decides about, or [1, N] for all
            rules; None for rules on tokens
    """

    rules: tuple[Placed, ...]
    marks: Tensor
    valid: Tensor | None = None
    counts: Tensor | None = None

    def __post_init__(self) -> None:
        check("marks", self.marks, 2, len(self.rules), -1, of=MARKS)
        check("valid", self.valid, *self.marks.shape[1:], of=MARKS)
        check("counts", self.counts, -1, self.marks.shape[2], of=DOUBLE)

    @property
    def whole(self) -> bool:
        """Whether they decide about whole sequences."""
        return self.counts is not None

    def counted(self, marks: Tensor, first: int = 0) -> Tensor:
        """Marks [..., K, N] of rules from the first on, of whole sequences, as tokens of these: float64."""
        if self.counts is None:
            raise ValueError("rules on tokens have no sequences")
        return marks * (self.counts if len(self.counts) == 1 else self.counts.narrow(0, first, marks.shape[-2]))

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


def decide(gaps: Gaps, rules: Sequence[Placed], start: int = 0) -> Decided:
    """What rules mark. `start`: where the gaps' tokens begin among those of the request.

    Raises ValueError where a rule looks at advantages that are not there, KeyError for a score that is not known.
    """
    if gaps.advantages is None and any(placed.rule.signs != "any" for placed in rules):
        raise ValueError("a sign rule needs advantages")
    per_token = gaps.advantages is not None and gaps.advantages.per_token
    groups: tuple[list[Placed], list[Placed]] = [], []
    for placed in sorted(rules, key=lambda placed: placed.order):
        groups[not decides_tokens(placed.rule, per_token)].append(placed)
    return Decided(*(_group(gaps, rules, whole, start) for rules, whole in zip(groups, (False, True), strict=True)))


def _group(gaps: Gaps, rules: Sequence[Placed], whole: bool, start: int) -> Group | None:
    if not rules:
        return None
    marks = _by_sign(gaps, rules, _marks(gaps, rules, whole, start), whole)
    valid, counts = None, gaps.counts_of(gaps_of(rules)) if whole else None
    if gaps.valid is not None:
        valid = chosen(gaps.valid, gaps_of(rules)) if counts is None else counts > 0
        marks = marks & valid
    marks[0].logical_or_(marks[1])
    return Group(tuple(rules), marks, valid, counts)


def _marks(gaps: Gaps, rules: Sequence[Placed], whole: bool, start: int) -> Tensor:
    """`_outside` of rules in their order, of which those on scores of sequences stand at each token unless `whole`."""
    of_tokens = [placed for placed in rules if placed.rule.of_tokens]
    of_sequences = [placed for placed in rules if not placed.rule.of_tokens]
    parts = [_outside(gaps, of_tokens, start)] if of_tokens else []
    if of_sequences:
        found = _outside(gaps, of_sequences)
        parts.append(found if whole else gaps.segments.spread(found))
    if len(parts) == 1:
        return parts[0]
    rows = [row for part in parts for row in part.unbind(1)]
    marks = dict(zip(map(id, (*of_tokens, *of_sequences)), rows, strict=True))
    return torch.stack([marks[id(placed)] for placed in rules], 1)


def _by_sign(gaps: Gaps, rules: Sequence[Placed], marks: Tensor, whole: bool) -> Tensor:
    """Those whose advantage has the sign that the rule looks at."""
    if gaps.advantages is None or all(placed.rule.signs == "any" for placed in rules):
        return marks
    groups = gaps.advantages.groups if whole else gaps.advantages.token_groups
    allowed = list(zip(*(_SIGNS[placed.rule.signs] for placed in rules), strict=True))
    return marks & constant(allowed, torch.bool, marks.device).index_select(2, groups)


def _outside(gaps: Gaps, rules: Sequence[Placed], start: int = 0) -> Tensor:
    """Above the upper and below the lower bound of any band of each rule, whatever the signs: [2, R, n] bool.

    What a Cut takes is 1, and above 0.
    """
    bands = [(number, band) for number, placed in enumerate(rules) for band in placed.rule.bands[:1] or (_TAKEN,)]
    further = [(number, band) for number, placed in enumerate(rules) for band in placed.rule.bands[1:]]
    every = [(rules[number], band) for number, band in (*bands, *further)]
    wanted = [placed.score(band) for placed, band in every if band is not _TAKEN]
    found = iter((token_scores if rules[0].rule.of_tokens else sequence_scores)(gaps, wanted))
    scores = torch.stack([_cut(gaps, placed, start) if band is _TAKEN else next(found) for placed, band in every])
    low, high = _limits(scores, [(band.lower, band.upper) for _, band in every])
    marks = torch.empty((2, *scores.shape), dtype=torch.bool, device=scores.device)
    torch.gt(scores, high, out=marks[0])
    torch.lt(scores, low, out=marks[1])
    for index, (number, _) in enumerate(further, len(rules)):
        marks.select(1, number).logical_or_(marks.select(1, index))
    return marks.narrow(1, 0, len(rules))


def _cut(gaps: Gaps, placed: Placed, start: int) -> Tensor:
    if placed.cut is None or not isinstance(placed.rule, Cut):
        raise ValueError("a rule that is a cut needs what it cuts")
    goes = placed.cut.marks(start, gaps.segments.tokens, gaps.policies.dtype)
    if placed.rule.score not in OUTWARD:
        return goes
    return goes * moves_outward(gaps.columns.log_ratio.select(0, placed.gap), gaps.advantages)


def _limits(scores: Tensor, bounds: Sequence[tuple[float, ...]]) -> tuple[Tensor, ...]:
    """Bounds of R scores, [R, 1] each; infinite beyond what their dtype can hold, where no score lies either."""
    return constant(bounds, scores.dtype, scores.device)[:, :, None].unbind(1)


def clip_weights(gaps: Gaps, group: Group) -> Tensor:
    """What truncations multiply the loss with, clip(r, lower, upper), and the same less 1, with its digits near 1.

    Of `group.clips`, of which there is one at least: [2, clips, T], or [2, clips, N] for whole sequences, float64. An
    absent bound clips nothing, and outside of what a rule keeps the weight is 0. Source: Yao et al.,
    https://fengyao.notion.site/off-policy-rl
    """
    rules = [placed.rule for placed in group.clips if isinstance(placed.rule, Clip)]
    if group.whole:
        bands = [placed.score(rule.band) for placed, rule in zip(group.clips, rules, strict=True)]
        ratios = ratio_and_excess(torch.stack(sequence_scores(gaps, bands)))
    else:
        both, indices = (gaps.columns.ratio, gaps.columns.excess), gaps_of(group.clips)
        ratios = torch.stack([column.select(0, gap) for column in both for gap in indices]).view(2, len(indices), -1)
    ends = [(rule.lower, rule.upper) for rule in rules]
    low, high = _limits(ratios, [*ends, *((low - 1, high - 1) for low, high in ends)])
    weights = ratios.clamp(low.view(2, -1, 1), high.view(2, -1, 1))
    if not any(rule.within for rule in rules):
        return weights
    nothing = constant([0.0, -1.0], weights.dtype, weights.device)[:, None]
    found = []
    for placed, rule, own in zip(group.clips, rules, weights.unbind(1), strict=True):
        if rule.within:
            [score] = sequence_scores(gaps, [placed.score(rule.within)])
            own = torch.where((score < rule.within.lower) | (score > rule.within.upper), nothing, own)
        found.append(own)
    return torch.stack(found, 1)
