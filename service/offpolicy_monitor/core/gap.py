"""Gaps: the tokens of several gaps in stacked columns, and what each of their sequences adds up to.

Shapes: C policies, G gaps, T packed tokens, N sequences. A gap is a pair of policies; where a log-prob is not finite
its token is not valid for the gaps that need it: its d is 0, and it is in no count. Everything is computed once, for
all gaps at a time, and only when asked for. No sums over the batch here (core.gap_sums) and no rules
(core.corrections). The notation is that of core.columns; over a sequence, D is the sum and L the mean of d.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from offpolicy_monitor.core.advantages import Advantages
from offpolicy_monitor.core.checks import MARKS, NUMBERS, check, check_shape
from offpolicy_monitor.core.columns import TokenColumns, token_columns
from offpolicy_monitor.core.divergences import bernoulli, binary_kls
from offpolicy_monitor.core.ragged import Segments


def chosen(rows: Tensor, indices: Sequence[int]) -> Tensor:
    """Some rows of a stack, in any order and as often as named: [K, ...] -> [len(indices), ...], one row at least.

    Rows are of any number's dtype, which they keep. Raises ValueError for a single number, TypeError for another dtype.
    """
    check("rows", rows, None, NUMBERS)
    return torch.stack([rows.select(0, index) for index in indices])


@dataclass(frozen=True, eq=False)
class Gaps:
    """Gaps over the same tokens. Raises ValueError for another rank or length, TypeError for another dtype.

    policies    [C, T] float32 or float64: log-probs, nats, finite; 0 where they were not
    above       which policy is the numerator of each gap
    below       which is its denominator
    valid       [G, T] bool, or None where every token is valid
    """

    policies: Tensor
    above: tuple[int, ...]
    below: tuple[int, ...]
    segments: Segments
    advantages: Advantages | None = None
    valid: Tensor | None = None

    def __post_init__(self) -> None:
        check("policies", self.policies, 2)
        if self.policies.shape[1] != self.segments.tokens:
            raise ValueError(f"policies have {self.policies.shape[1]} tokens, the sequences {self.segments.tokens}")
        if len(self.above) != len(self.below):
            raise ValueError(f"{len(self.above)} numerators for {len(self.below)} denominators")
        if self.valid is not None:
            check("valid", self.valid, 2, MARKS)
            check_shape("valid", self.valid, self.number, self.segments.tokens)

    @property
    def number(self) -> int:
        """G."""
        return len(self.above)

    @cached_property
    def sides(self) -> Tensor:
        """a and b, [2, G, T] nats; 0 where not valid."""
        return self.kept(chosen(self.policies, (*self.above, *self.below)).view(2, self.number, -1))

    @property
    def numerator(self) -> Tensor:
        """a, [G, T] nats."""
        return self.sides[0]

    @property
    def denominator(self) -> Tensor:
        """b, [G, T] nats."""
        return self.sides[1]

    @cached_property
    def columns(self) -> TokenColumns:
        """The derived columns, [G, T] each, and their totals."""
        return token_columns(self.sides, self.valid)

    def kept(self, values: Tensor) -> Tensor:
        """The values [..., G, T] of valid tokens, 0 for the others, whatever stands there."""
        return values if self.valid is None else torch.where(self.valid, values, 0.0)

    @cached_property
    def counts(self) -> Tensor:
        """[G, N] float64: valid tokens of each sequence."""
        if self.valid is None:
            return self.segments.counts.expand(self.number, -1)
        return self.segments.sum(self.valid)

    def counts_of(self, indices: Sequence[int]) -> Tensor:
        """`counts` of some of the gaps: [len(indices), N], or [1, N] where they are those of any."""
        return self.counts[:1] if self.valid is None else chosen(self.counts, indices)

    @cached_property
    def filled(self) -> Tensor:
        """[G, N] bool: sequences with a valid token."""
        return self.counts > 0

    def of_filled(self, values: Tensor) -> Tensor:
        """The values [..., G, N] of sequences with a valid token, 0 for the others, whatever stands there."""
        return values if self.valid is None else torch.where(self.filled, values, 0.0)

    @cached_property
    def sequence_sums(self) -> Tensor:
        """[7, G, N] float64: sums of d, |d|, d^2, k3, exp|d| - 1, a and b over each sequence's valid tokens."""
        columns = self.columns
        per_token = (
            columns.log_ratio, columns.log_ratio_abs, columns.log_ratio_square, columns.k3, columns.growth,
            self.numerator, self.denominator,
        )  # fmt: skip
        return self.segments.sums(per_token)

    @cached_property
    def sequence_means(self) -> Tensor:
        """[7, G, N] float64: the same over the number of valid tokens; 0 where there are none."""
        return self.sequence_sums / (self.counts if self.valid is None else self.counts.clamp(min=1.0))

    @property
    def sequence_sum(self) -> Tensor:
        """D = sum of d, [G, N] float64: the log of the product ratio."""
        return self.sequence_sums[0]

    @property
    def sequence_mean(self) -> Tensor:
        """L = mean of d, [G, N] float64: the log of the geometric ratio."""
        return self.sequence_means[0]

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

    def bounds(self, columns: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Smallest and largest valid value of each sequence, 0 where there is none: K [G, T] -> two [K, G, N]."""
        if self.valid is None:
            return self.segments.bounds(columns, columns)
        apart = ([torch.where(self.valid, column, end) for column in columns] for end in (torch.inf, -torch.inf))
        least, most = map(self.of_filled, self.segments.bounds(*apart))
        return least, most

    @cached_property
    def extremes(self) -> tuple[Tensor, Tensor]:
        """Smallest and largest d, |d|, p - q, |p - q| and `binary_kls` of each sequence, [6, G, N] float64 twice."""
        columns = self.columns
        differences = (columns.probability_difference, columns.probability_difference_abs)
        return self.bounds([columns.log_ratio, columns.log_ratio_abs, *differences, *self.binary_kls])

    @property
    def sequence_min(self) -> Tensor:
        """Smallest d, [G, N] float64."""
        return self.extremes[0][0]

    @property
    def sequence_max(self) -> Tensor:
        """Largest d, [G, N] float64."""
        return self.extremes[1][0]

    @property
    def sequence_abs_max(self) -> Tensor:
        """Largest |d|, [G, N] float64."""
        return self.extremes[1][1]

    @property
    def sequence_difference_max(self) -> Tensor:
        """Largest |p - q|, [G, N] float64."""
        return self.extremes[1][3]

    @cached_property
    def binary_kls(self) -> tuple[Tensor, Tensor]:
        """KL(q || p) with the sign of d, and the larger of KL(q || p) and KL(p || q): [G, T] float64 each, nats."""
        of_policies, sides = bernoulli(self.policies), (*self.below, *self.above)
        stacked = torch.stack([part.select(0, policy) for part in of_policies for policy in sides])
        moved, back = binary_kls(stacked.view(len(of_policies), 2, self.number, -1))
        away, larger = torch.copysign(moved, self.columns.log_ratio), torch.maximum(moved, back)
        return self.kept(away), self.kept(larger)

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
        return self.kept(self.advantages.magnitudes.expand(self.number, -1))

    @cached_property
    def sequence_mass(self) -> Tensor:
        """[G, N] float64: sum of |A| over each sequence's valid tokens, 0 without advantages."""
        if self.advantages is not None and not self.advantages.per_token:
            return self.advantages.values.abs() * self.counts
        return self.segments.sum(self._mass)
