"""Gaps: the tokens of several gaps in stacked columns, and what each of their sequences adds up to.

Shapes: C policies, G gaps, T packed tokens, N sequences. A gap is a pair of policies; where a log-prob is not finite
its token is not valid for the gaps that need it: its d is 0, and it is in no count. Everything is computed once, for
all gaps at a time, and only when asked for. No sums over the batch here (core.gap_sums) and no rules
(core.corrections). The notation is that of core.columns; over a sequence, D is the sum and L the mean of d.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from offpolicy_monitor.core.advantages import Advantages
from offpolicy_monitor.core.checks import check
from offpolicy_monitor.core.columns import TokenColumns, token_columns
from offpolicy_monitor.core.divergences import Bernoulli, bernoulli, binary_kls
from offpolicy_monitor.core.ragged import Segments
from offpolicy_monitor.vocabulary import EXPONENT_CLAMP

Derive = Callable[[Tensor, Tensor], TokenColumns]


def chosen(rows: Tensor, places: Sequence[int]) -> Tensor:
    """Some rows of a stack, in any order and as often as named: [K, ...] -> [len(places), ...]."""
    return torch.stack([rows.select(0, place) for place in places])


@dataclass(frozen=True, eq=False)
class Gaps:
    """Gaps over the same tokens.

    policies    [C, T] float32 or float64: log-probs, finite; 0 where they were not
    above       which policy is the numerator of each gap
    below       which is its denominator
    valid       [G, T] bool, or None where every token is valid
    derive      core.columns.token_columns, or a compiled form of it, for columns without an invalid token
    """

    policies: Tensor
    above: tuple[int, ...]
    below: tuple[int, ...]
    segments: Segments
    advantages: Advantages | None = None
    valid: Tensor | None = None
    derive: Derive = token_columns

    def __post_init__(self) -> None:
        check("policies", self.policies, 2)
        if self.policies.shape[1] != self.segments.tokens:
            raise ValueError(f"policies have {self.policies.shape[1]} tokens, the sequences {self.segments.tokens}")
        if len(self.above) != len(self.below):
            raise ValueError(f"{len(self.above)} numerators for {len(self.below)} denominators")
        if self.valid is not None and self.valid.shape != (self.number, self.segments.tokens):
            raise ValueError(f"valid has shape {tuple(self.valid.shape)}")

    @property
    def number(self) -> int:
        """G."""
        return len(self.above)

    @cached_property
    def numerator(self) -> Tensor:
        """a, [G, T] nats; 0 where not valid."""
        return self.kept(chosen(self.policies, self.above))

    @cached_property
    def denominator(self) -> Tensor:
        """b, [G, T] nats; 0 where not valid."""
        return self.kept(chosen(self.policies, self.below))

    @cached_property
    def columns(self) -> TokenColumns:
        """The derived columns, [G, T] each, and their totals."""
        if self.valid is None:
            return self.derive(self.numerator, self.denominator)
        return token_columns(self.numerator, self.denominator, self.valid)

    def kept(self, values: Tensor) -> Tensor:
        """The values [..., G, T] of valid tokens, 0 for the others, whatever stands there."""
        return values if self.valid is None else torch.where(self.valid, values, 0.0)

    @cached_property
    def counts(self) -> Tensor:
        """[G, N] float64: valid tokens of each sequence."""
        if self.valid is None:
            return self.segments.counts.expand(self.number, -1)
        return self.segments.sum(self.valid)

    @cached_property
    def tokens(self) -> Tensor:
        """[G] float64: valid tokens."""
        return self.counts.sum(-1)

    @cached_property
    def filled(self) -> Tensor:
        """[G, N] bool: sequences with a valid token."""
        return self.counts > 0

    @cached_property
    def _divisors(self) -> Tensor:
        return self.counts.clamp(min=1.0)

    @cached_property
    def sequence_sums(self) -> Tensor:
        """[7, G, N] float64: sums of d, |d|, d^2, k3, exp|d| - 1, a and b over each sequence's valid tokens."""
        columns = self.columns
        per_token = (
            columns.log_ratio, columns.log_ratio_abs, columns.log_ratio_square, columns.k3, columns.growth,
            self.numerator, self.denominator,
        )  # fmt: skip
        return self.segments.sums(per_token)

    @property
    def sequence_sum(self) -> Tensor:
        """D = sum of d, [G, N] float64: the log of the product ratio."""
        return self.sequence_sums[0]

    @cached_property
    def sequence_mean(self) -> Tensor:
        """L = mean of d, [G, N] float64: the log of the geometric ratio."""
        return self.sequence_sum / self._divisors

    @property
    def sequence_abs_sum(self) -> Tensor:
        """Sum of |d|, [G, N] float64."""
        return self.sequence_sums[1]

    @property
    def sequence_square_sum(self) -> Tensor:
        """Sum of d^2, [G, N] float64."""
        return self.sequence_sums[2]

    @property
    def sequence_k3_sum(self) -> Tensor:
        """Sum of k3, [G, N] float64."""
        return self.sequence_sums[3]

    @property
    def sequence_growth_sum(self) -> Tensor:
        """Sum of exp|d| - 1, [G, N] float64."""
        return self.sequence_sums[4]

    @cached_property
    def sequence_log_probs(self) -> tuple[Tensor, Tensor]:
        """Mean of a and mean of b, [G, N] float64."""
        return self.sequence_sums[5] / self._divisors, self.sequence_sums[6] / self._divisors

    def mean(self, sums: Tensor) -> Tensor:
        """Sums of sequences [G, N] over their valid tokens; 0 where there are none."""
        return sums / self._divisors

    def least(self, values: Tensor, gap: int | None = None) -> Tensor:
        """Smallest valid value of each sequence, 0 where there is none: of gaps [G, T] -> [G, N] float64, or of one."""
        if self.valid is None:
            return self.segments.min(values)
        valid, filled = (self.valid, self.filled) if gap is None else (self.valid[gap], self.filled[gap])
        return torch.where(filled, self.segments.min(torch.where(valid, values, torch.inf)), 0.0)

    def most(self, values: Tensor, gap: int | None = None) -> Tensor:
        """Largest valid value of each sequence, as `least`."""
        return -self.least(-values, gap)

    @cached_property
    def sequence_min(self) -> Tensor:
        """Smallest d, [G, N] float64."""
        return self.least(self.columns.log_ratio)

    @cached_property
    def sequence_max(self) -> Tensor:
        """Largest d, [G, N] float64."""
        return self.most(self.columns.log_ratio)

    @cached_property
    def sequence_abs_max(self) -> Tensor:
        """Largest |d|, [G, N] float64."""
        return torch.maximum(-self.sequence_min, self.sequence_max)

    @cached_property
    def probabilities(self) -> tuple[Tensor, Tensor]:
        """p and q, [G, T] float64, 0 where not valid; exponents are clamped at 80."""
        probability = torch.exp(self.policies.double().clamp(max=EXPONENT_CLAMP))
        return self.kept(chosen(probability, self.above)), self.kept(chosen(probability, self.below))

    @cached_property
    def _bernoulli(self) -> Bernoulli:
        return bernoulli(self.policies)

    @cached_property
    def _binary_kls(self) -> dict[int, tuple[Tensor, Tensor]]:
        return {}

    def binary_kls(self, gap: int) -> tuple[Tensor, Tensor]:
        """KL(q || p) with the sign of d, and the larger of KL(q || p) and KL(p || q): [T] each, nats.

        Of one gap, since few rules look at them, and they cost as much as all other columns of a gap.
        """
        if gap not in self._binary_kls:
            p, q = (Bernoulli(*(part[side[gap]] for part in self._bernoulli)) for side in (self.above, self.below))
            moved, back = binary_kls(q, p)
            found = torch.copysign(moved, self.columns.log_ratio[gap]), torch.maximum(moved, back)
            kept = found if self.valid is None else [torch.where(self.valid[gap], kl, 0.0) for kl in found]
            self._binary_kls[gap] = kept[0].to(self.policies.dtype), kept[1].to(self.policies.dtype)
        return self._binary_kls[gap]

    @cached_property
    def token_weights(self) -> Tensor:
        """k3, d^2 and |A| (0 without advantages) of each token: [G, 3, T]."""
        return torch.stack([self.columns.k3, self.columns.log_ratio_square, self._mass], 1)

    @cached_property
    def sequence_weights(self) -> Tensor:
        """The same added up over each sequence's valid tokens: [G, 3, N] float64."""
        return torch.stack([self.sequence_k3_sum, self.sequence_square_sum, self.sequence_mass], 1)

    @cached_property
    def _mass(self) -> Tensor:
        """[G, T]: |A| of valid tokens, 0 without advantages."""
        if self.advantages is None:
            return torch.zeros((), device=self.policies.device).expand(self.number, self.segments.tokens)
        return self.kept(self.advantages.of_tokens.abs().expand(self.number, -1))

    @cached_property
    def sequence_mass(self) -> Tensor:
        """[G, N] float64: sum of |A| over each sequence's valid tokens, 0 without advantages."""
        if self.advantages is not None and not self.advantages.a_token:
            return self.advantages.values.abs().double() * self.counts
        return self.segments.sum(self._mass)
