"""Scores: what rules compare with their thresholds, by name; a figure of each token, or of each sequence.

Shapes: T valid tokens of a gap, N sequences. Notation of core.columns and core.gap: d, D, L, p, q; KL is the binary KL
of divergences.binary_kl. A sequence's score of a rule on tokens is the least (or largest) of its tokens'.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import torch
from torch import Tensor

from offpolicy_monitor.core.divergences import binary_kl, binary_variance
from offpolicy_monitor.core.gap import GapTokens
from offpolicy_monitor.core.rules import places_of_divergence

#: Binary KLs below this are not told from 0: no threshold is near it, and the logarithms would cost more than the rest.
LEAST_KL: Final = 2.0**-8


@dataclass(frozen=True, eq=False)
class Scores:
    """The scores of a gap's tokens; each is computed once, and only when asked for."""

    gap: GapTokens

    def of_tokens(self, name: str) -> Tensor:
        """[T] of the score of this name in OF_TOKENS."""
        return OF_TOKENS[name](self)

    def of_sequences(self, name: str) -> Tensor:
        """[N] float64 of the score of this name: of OF_SEQUENCES, or `<token score>_min`, `_max` or `_abs_min`."""
        if name in OF_SEQUENCES:
            return OF_SEQUENCES[name](self.gap)
        for ending, least in _EXTREMES.items():
            if name.endswith(ending):
                return least(self.gap, self.of_tokens(name.removesuffix(ending)))
        raise KeyError(name)

    @cached_property
    def binary_kls(self) -> tuple[Tensor, Tensor]:
        """KL(q || p) with the sign of d, and the larger of KL(q || p) and KL(p || q): [T] float64, 0 below LEAST_KL."""
        gap = self.gap
        variance = torch.minimum(binary_variance(gap.numerator), binary_variance(gap.denominator))
        far = places_of_divergence(gap, LEAST_KL, variance)
        a, b = gap.numerator[far], gap.denominator[far]
        moved, other = binary_kl(b, a), binary_kl(a, b)
        away = torch.zeros(gap.segments.tokens, dtype=torch.float64, device=gap.numerator.device)
        larger = away.clone()
        away[far] = torch.copysign(moved, gap.log_ratio[far])
        larger[far] = torch.maximum(moved, other)
        return away, larger


OF_TOKENS: Final[Mapping[str, Callable[[Scores], Tensor]]] = {
    "log_ratio": lambda scores: scores.gap.log_ratio,
    "probability_difference": lambda scores: scores.gap.columns.probability_difference,
    "kl_away": lambda scores: scores.binary_kls[0],
    "kl_larger": lambda scores: scores.binary_kls[1],
}

OF_SEQUENCES: Final[Mapping[str, Callable[[GapTokens], Tensor]]] = {
    "log_geometric_ratio": lambda gap: gap.sequence_mean,
    "log_product_ratio": lambda gap: gap.sequence_sum,
    "log_ratio_min": lambda gap: gap.sequence_min,
    "log_ratio_max": lambda gap: gap.sequence_max,
    "log_ratio_abs_max": lambda gap: gap.sequence_abs_max,
    "k3_mean": lambda gap: gap.sequence_k3_sum / gap.segments.counts,
    "growth_mean": lambda gap: gap.sequence_growth_sum / gap.segments.counts,
}

_EXTREMES: Final[Mapping[str, Callable[[GapTokens, Tensor], Tensor]]] = {
    "_abs_min": lambda gap, values: gap.segments.min(values.abs()),
    "_min": lambda gap, values: gap.segments.min(values),
    "_max": lambda gap, values: gap.segments.max(values),
}
