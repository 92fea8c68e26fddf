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

from offpolicy_monitor.core.divergences import binary_kl, binary_variance, comparable
from offpolicy_monitor.core.gap import GapTokens
from offpolicy_monitor.core.select import places_above

#: What-if does not tell binary KLs below this from 0: no threshold is near it, and the logarithms would cost more than
#: the rest.
LEAST_KL: Final = 2.0**-8


@dataclass(frozen=True, eq=False)
class Scores:
    """The scores of a gap's tokens; each is computed once, and only when asked for.

    A binary KL of at most `least_kl` may be given as 0.
    """

    gap: GapTokens
    least_kl: float = LEAST_KL

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
        """KL(q || p) with the sign of d, and the larger of KL(q || p) and KL(p || q): [T] float64."""
        gap, far = self.gap, self._far
        a, b = gap.numerator[far], gap.denominator[far]
        moved, other = binary_kl(b, a), binary_kl(a, b)
        away = torch.zeros(gap.segments.tokens, dtype=torch.float64, device=gap.numerator.device)
        larger = away.clone()
        # Rounding may take a KL below 0, where its sign would say that the token moved the other way.
        away[far] = torch.copysign(moved.clamp(min=0), gap.log_ratio[far])
        larger[far] = torch.maximum(moved, other)
        return away, larger

    @property
    def _far(self) -> Tensor:
        """Places [n] of a superset of the tokens either of whose binary KLs exceeds `least_kl`.

        KL <= chi2 = (p - q)^2 / (p (1 - p)), which is cheap. The factor leaves room for rounding, and equal policies,
        which are common where both are certain, have no KL at all.
        """
        gap, difference = self.gap, self.gap.columns.probability_difference
        variance = torch.minimum(binary_variance(gap.numerator), binary_variance(gap.denominator))
        room = comparable(0.99 * self.least_kl, difference)
        places = places_above(torch.addcmul(variance * -room, difference, difference), -1e-30)
        return places[difference[places] != 0]


OF_TOKENS: Final[Mapping[str, Callable[[Scores], Tensor]]] = {
    "log_ratio": lambda scores: scores.gap.log_ratio,
    "log_ratio_abs": lambda scores: scores.gap.columns.log_ratio_abs,
    "k3": lambda scores: scores.gap.columns.k3,
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
    "k2_mean": lambda gap: gap.sequence_square_sum / 2 / gap.segments.counts,
    "k2_sum": lambda gap: gap.sequence_square_sum / 2,
    "k3_mean": lambda gap: gap.sequence_k3_sum / gap.segments.counts,
    "k3_sum": lambda gap: gap.sequence_k3_sum,
    "k3_max": lambda gap: gap.sequence_k3_max,
    "growth_mean": lambda gap: gap.sequence_growth_sum / gap.segments.counts,
}

_EXTREMES: Final[Mapping[str, Callable[[GapTokens, Tensor], Tensor]]] = {
    "_abs_min": lambda gap, values: gap.segments.min(values.abs()),
    "_min": lambda gap, values: gap.segments.min(values),
    "_max": lambda gap, values: gap.segments.max(values),
}
