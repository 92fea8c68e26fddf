"""Scores: what rules compare with their thresholds, by name; a figure of each token, or of each sequence.

Shapes: T tokens, N sequences of one of several gaps. Notation of core.columns and core.gap: d, D, L, p, q; KL is the
binary KL of divergences.binary_kls. A sequence's score of a rule on tokens is the least (or largest) of its tokens'.
"""

from collections.abc import Callable, Mapping
from typing import Final

import torch
from torch import Tensor

from offpolicy_monitor.core.divergences import k3_of
from offpolicy_monitor.core.gap import Gaps


def token_score(gaps: Gaps, name: str, gap: int) -> Tensor:
    """[T] of a gap, of the score of this name in OF_TOKENS; KeyError for another name."""
    return OF_TOKENS[name](gaps, gap)


def sequence_score(gaps: Gaps, name: str, gap: int) -> Tensor:
    """[N] float64 of a gap, of the score of this name: of OF_SEQUENCES, or `<token score>_min`, `_max` or `_abs_min`.

    0 where a sequence has no valid token. KeyError for another name.
    """
    if name in OF_SEQUENCES:
        return OF_SEQUENCES[name](gaps)[gap]
    for ending, extreme in _EXTREMES.items():
        if name.endswith(ending):
            return extreme(gaps, token_score(gaps, name.removesuffix(ending), gap), gap)
    raise KeyError(name)


OF_TOKENS: Final[Mapping[str, Callable[[Gaps, int], Tensor]]] = {
    "log_ratio": lambda gaps, gap: gaps.columns.log_ratio[gap],
    "log_ratio_abs": lambda gaps, gap: gaps.columns.log_ratio_abs[gap],
    "k3": lambda gaps, gap: gaps.columns.k3[gap],
    "probability_difference": lambda gaps, gap: gaps.columns.probability_difference[gap],
    "kl_away": lambda gaps, gap: gaps.binary_kls(gap)[0],
    "kl_larger": lambda gaps, gap: gaps.binary_kls(gap)[1],
}

#: Of all gaps, [G, N] each. k3 is convex with its minimum at 0: its largest lies at an extreme of d.
OF_SEQUENCES: Final[Mapping[str, Callable[[Gaps], Tensor]]] = {
    "log_geometric_ratio": lambda gaps: gaps.sequence_mean,
    "log_product_ratio": lambda gaps: gaps.sequence_sum,
    "log_ratio_min": lambda gaps: gaps.sequence_min,
    "log_ratio_max": lambda gaps: gaps.sequence_max,
    "log_ratio_abs_max": lambda gaps: gaps.sequence_abs_max,
    "k2_mean": lambda gaps: gaps.mean(gaps.sequence_square_sum / 2),
    "k2_sum": lambda gaps: gaps.sequence_square_sum / 2,
    "k3_mean": lambda gaps: gaps.mean(gaps.sequence_k3_sum),
    "k3_sum": lambda gaps: gaps.sequence_k3_sum,
    "k3_max": lambda gaps: torch.maximum(k3_of(gaps.sequence_min), k3_of(gaps.sequence_max)),
    "growth_mean": lambda gaps: gaps.mean(gaps.sequence_growth_sum),
}

_EXTREMES: Final[Mapping[str, Callable[[Gaps, Tensor, int], Tensor]]] = {
    "_abs_min": lambda gaps, values, gap: gaps.least(values.abs(), gap),
    "_min": lambda gaps, values, gap: gaps.least(values, gap),
    "_max": lambda gaps, values, gap: gaps.most(values, gap),
}
