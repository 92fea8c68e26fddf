"""Scores of tokens whose update moves the policy further out: A d > 0. The others' are 0, which no rule drops.

Shapes: T tokens of N sequences; of one gap, whose invalid tokens are in no sum, no count and no order. p and q are the
probabilities of the sampled token by the two policies, d = log p / q, r = exp(d). Sources: M2PO, https://arxiv.org/abs/2510.01161;
VACO, https://arxiv.org/abs/2603.01365; CPPO, https://arxiv.org/abs/2606.10968
"""

from collections.abc import Callable, Mapping
from typing import Final

import torch
from torch import Tensor

from offpolicy_monitor.core.advantages import Advantages
from offpolicy_monitor.core.checks import check
from offpolicy_monitor.core.device import where
from offpolicy_monitor.core.gap import Gaps
from offpolicy_monitor.core.order import ascending, sums_before
from offpolicy_monitor.methods.curve import OUTWARD_SCORES, Budget, Given
from offpolicy_monitor.vocabulary import DRIFT_QUANTILE, NEGATIVE, POSITIVE


def moves_outward(log_ratio: Tensor, advantages: Advantages | None) -> Tensor:
    """Whether A d > 0: d [T] float, nats -> [T] bool.

    Raises ValueError for another rank or length, or without advantages, TypeError for another dtype.
    """
    if advantages is None:
        raise ValueError("a score of tokens that move outward needs advantages")
    check("log_ratio", log_ratio, advantages.segments.tokens)
    signs = advantages.token_groups
    return ((signs == POSITIVE) & (log_ratio > 0)) | ((signs == NEGATIVE) & (log_ratio < 0))


def outward_score(gaps: Gaps, gap: int, score: str, given: Given = ()) -> Tensor:
    """[T] float: a score of OUTWARD of one gap. KeyError for another name, ValueError without advantages."""
    there = moves_outward(gaps.columns.log_ratio.select(0, gap), gaps.advantages)
    return where(there, OUTWARD[score](gaps, gap, given), 0.0)


def outward_least(gaps: Gaps, gap: int, score: str, given: Given = ()) -> Tensor:
    """[N] float64: the least that a sequence's valid tokens have of `<score>_min`, 0 without one. Raises as above."""
    values = outward_score(gaps, gap, score.removesuffix("_min"), given)
    if gaps.valid is None:
        return gaps.segments.min(values)
    least = gaps.segments.min(where(gaps.valid.select(0, gap), values, torch.inf))
    return where(gaps.filled.select(0, gap), least, 0.0)


def _log_ratio(gaps: Gaps, gap: int, given: Given) -> Tensor:
    """|d|."""
    return gaps.columns.log_ratio_abs.select(0, gap)


def _distance(gaps: Gaps, gap: int, given: Given) -> Tensor:
    """Mean |r - 1| of the sequence, twice the total variation that its tokens estimate."""
    total = gaps.segments.sum(gaps.columns.excess.select(0, gap).abs())
    return gaps.segments.spread(total / gaps.counts.select(0, gap).clamp(min=1.0))


def _drift(gaps: Gaps, gap: int, given: Given) -> Tensor:
    """max(Z, Z + S - b W): Z = w |p - q|, and S and W the sums of Z and of w over the tokens before.

    w falls from 1 at a sequence's first token to the last weight at its last; b is the quantile of |p - q| over the
    sequence, within the budget. Above delta, Z is more than min(delta, delta + b W - S).
    """
    segments, valid = gaps.segments, None if gaps.valid is None else gaps.valid.select(0, gap)
    budget = Budget.of(given)
    moved, counts = gaps.columns.probability_difference_abs.select(0, gap), gaps.counts.select(0, gap)
    one = torch.ones_like(moved) if valid is None else valid.double()
    share = sums_before(one, segments) / segments.spread((counts - 1).clamp(min=1.0))
    weight = one * (1 - (1 - budget.last_weight) * share)
    spent = weight * moved
    allowed = segments.spread(_quantile(gaps, moved, valid, counts).clamp(budget.least, budget.most))
    spent_before, weight_before = sums_before(torch.stack([spent, weight]), segments).unbind()
    return torch.maximum(spent, spent + spent_before - allowed * weight_before)


def _quantile(gaps: Gaps, values: Tensor, valid: Tensor | None, counts: Tensor) -> Tensor:
    """[N]: of each sequence's valid values, interpolated between the two next to it; 0 where there is none."""
    ordered = ascending(values if valid is None else where(valid, values, torch.inf), gaps.segments)
    rank = DRIFT_QUANTILE * (counts - 1).clamp(min=0.0)
    below, last = rank.floor(), (counts - 1).clamp(min=0.0)
    low, high = (ordered.take(gaps.segments.starts + index.long()) for index in (below, torch.minimum(below + 1, last)))
    found = low + (high - low) * (rank - below)
    return where(counts > 0, found, 0.0)


OUTWARD: Final[Mapping[str, Callable[[Gaps, int, Given], Tensor]]] = dict(
    zip(OUTWARD_SCORES, (_log_ratio, _distance, _drift), strict=True)
)
