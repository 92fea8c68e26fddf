"""GapTokens: the valid tokens of one gap with every derived column, each computed once and only when asked for.

Shapes: T valid tokens packed, N sequences that have one. This is where the notation lives: a, b are the log-probs of
the numerator and the denominator policy, d = a - b in nats, r = exp(d), p = exp(a), q = exp(b). No sums over the
batch here (core.gap_sums) and no rules (core.token_rules, core.sequence_rules).
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from offpolicy_monitor.core.advantages import Advantages
from offpolicy_monitor.core.divergences import (
    EXPONENT_CLAMP,
    K3,
    k3_of,
    k3_terms,
    probability,
    probability_difference,
    ratio_excess,
)
from offpolicy_monitor.core.ragged import Segments


@dataclass(frozen=True, eq=False)
class LogProbs:
    """One log-prob column, finite: values [T] float32 or float64. Shared by the gaps it takes part in."""

    values: Tensor

    @cached_property
    def probability(self) -> Tensor:
        """exp(values), [T]."""
        return probability(self.values)

    @cached_property
    def probability64(self) -> Tensor:
        """The same in float64, for second moments."""
        return self.probability.double()


@dataclass(frozen=True, eq=False)
class GapTokens:
    """Valid tokens of a gap: numerator and denominator log-probs [T], their sequences, advantages or None."""

    numerator: LogProbs
    denominator: LogProbs
    segments: Segments
    advantages: Advantages | None = None

    def __post_init__(self) -> None:
        expected = (self.segments.tokens,)
        for name, column in (("numerator", self.numerator), ("denominator", self.denominator)):
            if column.values.shape != expected:
                raise ValueError(f"{name} has shape {tuple(column.values.shape)}, expected {expected}")

    @cached_property
    def log_ratio(self) -> Tensor:
        """d = a - b, [T] nats."""
        return self.numerator.values - self.denominator.values

    @cached_property
    def log_ratio_abs(self) -> Tensor:
        """|d|, [T] nats."""
        return self.log_ratio.abs()

    @cached_property
    def log_ratio_square(self) -> Tensor:
        """d^2, [T]."""
        return self.log_ratio.square()

    @cached_property
    def excess(self) -> Tensor:
        """r - 1, [T]."""
        return ratio_excess(self.log_ratio)

    @cached_property
    def inverse_excess(self) -> Tensor:
        """1/r - 1, [T]."""
        return ratio_excess(-self.log_ratio)

    @cached_property
    def shrink(self) -> Tensor:
        """expm1(-|d|), [T], in (-1, 0]."""
        return torch.minimum(self.excess, self.inverse_excess)

    @cached_property
    def growth(self) -> Tensor:
        """expm1(|d|), [T]."""
        return torch.maximum(self.excess, self.inverse_excess)

    @cached_property
    def k3(self) -> K3:
        """k3 forward and reverse, [T] each."""
        return k3_terms(self.log_ratio, self.excess, self.inverse_excess)

    @cached_property
    def probability_difference(self) -> Tensor:
        """|p - q|, [T]."""
        return probability_difference(self.numerator.probability, self.denominator.probability, self.shrink)

    @cached_property
    def signed_probability_difference(self) -> Tensor:
        """p - q, [T]."""
        return torch.copysign(self.probability_difference, self.log_ratio)

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
        return self.segments.sum(self.log_ratio_abs)

    @cached_property
    def sequence_square_sum(self) -> Tensor:
        """Sum of d^2, [N] float64."""
        return self.segments.sum(self.log_ratio_square)

    @cached_property
    def sequence_k3_sum(self) -> Tensor:
        """Sum of k3, [N] float64."""
        return self.segments.sum(self.k3.forward)

    @cached_property
    def sequence_growth_sum(self) -> Tensor:
        """Sum of exp|d| - 1, [N] float64."""
        return self.segments.sum(self.growth)

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
        return self.segments.sum(self.numerator.values)

    @cached_property
    def sequence_denominator_sum(self) -> Tensor:
        """Sum of b, [N] float64."""
        return self.segments.sum(self.denominator.values)

    def with_clamped(self, clamp: float) -> Tensor:
        """exp(clip(d, +-clamp)) - 1, [T]; reuses `excess` where no token reaches the clamp."""
        if clamp <= EXPONENT_CLAMP and (not self.segments.tokens or float(self.log_ratio_abs.amax()) <= clamp):
            return self.excess
        return torch.expm1(self.log_ratio.clamp(-clamp, clamp))
