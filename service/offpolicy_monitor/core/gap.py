"""GapTokens: the valid tokens of one gap, their columns, and what each of their sequences adds up to.

Shapes: T valid tokens packed, N sequences that have one. Everything is computed once, and only when asked for. No sums
over the batch here (core.gap_sums) and no rules (core.corrections). The notation is that of core.columns; over a
sequence, D is the sum and L the mean of d.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from offpolicy_monitor.core.advantages import Advantages
from offpolicy_monitor.core.columns import TokenColumns, token_columns
from offpolicy_monitor.core.divergences import k3_of
from offpolicy_monitor.core.ragged import Segments

Derive = Callable[[Tensor, Tensor], TokenColumns]


@dataclass(frozen=True, eq=False)
class GapTokens:
    """Valid tokens of a gap: numerator and denominator log-probs [T], their sequences, advantages or None.

    `derive` is core.columns.token_columns, or a compiled form of it.
    """

    numerator: Tensor
    denominator: Tensor
    segments: Segments
    advantages: Advantages | None = None
    derive: Derive = token_columns

    def __post_init__(self) -> None:
        expected = (self.segments.tokens,)
        for name, column in (("numerator", self.numerator), ("denominator", self.denominator)):
            if column.shape != expected:
                raise ValueError(f"{name} has shape {tuple(column.shape)}, expected {expected}")

    @cached_property
    def columns(self) -> TokenColumns:
        """The derived columns, [T] each, and their totals."""
        return self.derive(self.numerator, self.denominator)

    @property
    def log_ratio(self) -> Tensor:
        """d, [T] nats."""
        return self.columns.log_ratio

    @cached_property
    def sequence_sum(self) -> Tensor:
        """D = sum of d, [N] float64: the log of the product ratio."""
        return self.segments.sum(self.log_ratio)

    @cached_property
    def sequence_mean(self) -> Tensor:
        """L = mean of d, [N] float64: the log of the geometric ratio."""
        return self.sequence_sum / self.segments.counts

    @cached_property
    def sequence_abs_sum(self) -> Tensor:
        """Sum of |d|, [N] float64."""
        return self.segments.sum(self.columns.log_ratio_abs)

    @cached_property
    def sequence_square_sum(self) -> Tensor:
        """Sum of d^2, [N] float64."""
        return self.segments.sum(self.columns.log_ratio_square)

    @cached_property
    def sequence_k3_sum(self) -> Tensor:
        """Sum of k3, [N] float64."""
        return self.segments.sum(self.columns.k3)

    @cached_property
    def sequence_growth_sum(self) -> Tensor:
        """Sum of exp|d| - 1, [N] float64."""
        return self.segments.sum(self.columns.growth)

    @cached_property
    def sequence_min(self) -> Tensor:
        """Smallest d, [N] float64."""
        return self.segments.min(self.log_ratio)

    @cached_property
    def sequence_max(self) -> Tensor:
        """Largest d, [N] float64."""
        return self.segments.max(self.log_ratio)

    @cached_property
    def sequence_abs_max(self) -> Tensor:
        """Largest |d|, [N] float64."""
        return torch.maximum(-self.sequence_min, self.sequence_max)

    @cached_property
    def sequence_k3_max(self) -> Tensor:
        """Largest k3, [N] float64; k3 is convex with its minimum at 0, so it lies at an extreme of d."""
        return torch.maximum(k3_of(self.sequence_min), k3_of(self.sequence_max))

    @cached_property
    def sequence_numerator_sum(self) -> Tensor:
        """Sum of a, [N] float64."""
        return self.segments.sum(self.numerator)

    @cached_property
    def sequence_denominator_sum(self) -> Tensor:
        """Sum of b, [N] float64."""
        return self.segments.sum(self.denominator)
