"""Scores of tokens whose update moves the policy further out: A d > 0. The others' are 0, which no rule drops.

Shapes: G gaps, T tokens of N sequences. A gap's invalid tokens are in no sum, no count and no order. p and q are the
probabilities of the sampled token by the two policies, d = log p / q, r = exp(d). Sources: M2PO, https://arxiv.org/abs/2510.01161;
VACO, https://arxiv.org/abs/2603.01365; CPPO, https://arxiv.org/abs/2606.10968
"""

from collections.abc import Callable, Mapping
from typing import Final

import torch
from torch import Tensor

from offpolicy_monitor.core.advantages import Advantages
from offpolicy_monitor.core.checks import FLOATS, check
from offpolicy_monitor.core.device import where
from offpolicy_monitor.core.gap import Gaps
from offpolicy_monitor.core.order import ascending, counts_before, sums_before
from offpolicy_monitor.methods.curve import OUTWARD_SCORES, Budget, Given
from offpolicy_monitor.vocabulary import DRIFT_QUANTILE, ZERO

#: What a token adds to the drift of its prefix at most: |p - q| is beyond 1 where a log-prob is above 0 alone.
MOST_MOVED: Final = 1024.0


def moves_outward(log_ratio: Tensor, advantages: Advantages | None) -> Tensor:
    """Whether A d > 0: d [..., T] float, nats -> [..., T] bool.

    Raises ValueError for a single number, another length, or without advantages, TypeError for another dtype.
    """
    if advantages is None:
        raise ValueError("a score of tokens that move outward needs advantages")
    check("log_ratio", log_ratio, *log_ratio.shape[:-1], advantages.segments.tokens, of=FLOATS)
    return (advantages.token_groups - ZERO) * log_ratio > 0


def outward_score(gaps: Gaps, gap: int, score: str, given: Given = ()) -> Tensor:
    """[T] float: a score of OUTWARD of one gap. KeyError for another name, ValueError without advantages."""
    return _of_gaps(gaps, score, given).select(0, gap)


def outward_least(gaps: Gaps, gap: int, score: str, given: Given = ()) -> Tensor:
    """[N] float64: the least that a sequence's valid tokens have of `<score>_min`, 0 without one. Raises as above."""
    values = outward_score(gaps, gap, score.removesuffix("_min"), given)
    if gaps.valid is None:
        return gaps.segments.min(values)
    least = gaps.segments.min(where(gaps.valid.select(0, gap), values, torch.inf))
    return where(gaps.filled.select(0, gap), least, 0.0)


def _of_gaps(gaps: Gaps, score: str, given: Given) -> Tensor:
    """[G, T]: a score of all gaps, made once."""
    if (score, given) not in gaps.outward:
        there = moves_outward(gaps.columns.log_ratio, gaps.advantages)
        gaps.outward[score, given] = where(there, OUTWARD[score](gaps, given), 0.0)
    return gaps.outward[score, given]


def _log_ratio(gaps: Gaps, given: Given) -> Tensor:
    """|d|."""
    return gaps.columns.log_ratio_abs


def _distance(gaps: Gaps, given: Given) -> Tensor:
    """Mean |r - 1| of the sequence, twice the total variation that its tokens estimate."""
    return gaps.segments.spread(gaps.segments.sum(gaps.columns.excess.abs()) / gaps.counts.clamp(min=1.0))


def _drift(gaps: Gaps, given: Given) -> Tensor:
    """max(Z, Z + S - b W): Z = w |p - q|, and S and W the sums of Z and of w over the tokens before.

    w falls from 1 at a sequence's first token to the last weight at its last, by 1 - w = f k at the k-th after it, so
    that W = k - f k (k - 1) / 2; b is the quantile of |p - q| over the sequence, within the budget. Above delta, Z is
    more than min(delta, delta + b W - S).
    """
    segments, budget = gaps.segments, Budget.of(given)
    moved, last = gaps.columns.probability_difference_abs, (gaps.counts - 1).clamp(min=0.0)
    allowed = _quantile(gaps, moved, last).clamp(budget.least, budget.most)
    fall = (1 - budget.last_weight) / last.clamp(min=1.0)
    allowed, fall = segments.spread(torch.stack([allowed, fall])).unbind()
    before = segments.indices if gaps.valid is None else counts_before(gaps.valid, segments)
    fallen = fall * before
    spent = gaps.kept(torch.addcmul(moved, moved, fallen, value=-1))
    weights_before = torch.addcmul(before, fallen, before - 1, value=-0.5)
    spent_before = sums_before(spent, segments, MOST_MOVED)
    return spent + torch.addcmul(spent_before, allowed, weights_before, value=-1).clamp(min=0.0)


def _quantile(gaps: Gaps, values: Tensor, last: Tensor) -> Tensor:
    """[G, N]: of each sequence's valid values [G, T], interpolated between the two next to it; 0 where there is none.

    last: the index of the last of them, [G, N] float64.
    """
    ordered = ascending(values if gaps.valid is None else where(gaps.valid, values, torch.inf), gaps.segments)
    rank = DRIFT_QUANTILE * last
    ends = torch.stack([rank, rank.ceil()], 1).long() + gaps.segments.starts  # the first is cut to a whole rank
    low, high = ordered.gather(-1, ends.flatten(1)).view(ends.shape).unbind(1)
    return gaps.of_filled(torch.lerp(low, high, rank.frac()))


OUTWARD: Final[Mapping[str, Callable[[Gaps, Given], Tensor]]] = dict(
    zip(OUTWARD_SCORES, (_log_ratio, _distance, _drift), strict=True)
)
