"""The advantages of a set of tokens, one a sequence or one a token, in the forms that rules and sums need.

Shapes: T packed tokens, N non-empty sequences. A sequence's advantage stands at each of its tokens.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from offpolicy_monitor.core.divergences import indicator_above, indicator_below
from offpolicy_monitor.core.ragged import Segments


@dataclass(frozen=True, eq=False)
class Advantages:
    """values [N] or [T] float, finite; `a_token` says which, since N may equal T."""

    values: Tensor
    a_token: bool
    segments: Segments

    def __post_init__(self) -> None:
        expected = self.segments.tokens if self.a_token else self.segments.sequences
        if self.values.shape != (expected,):
            raise ValueError(f"advantages have shape {tuple(self.values.shape)}, expected ({expected},)")

    def at(self, places: Tensor) -> Tensor:
        """The advantage at each of these tokens: places [n] int64 -> [n]."""
        return self.values[places if self.a_token else self.segments.owners(places)]

    @cached_property
    def negative(self) -> Tensor:
        """1.0 where A < 0 (so not for -0.0), shaped as `values`."""
        return indicator_below(self.values, 0.0)

    @cached_property
    def positive(self) -> Tensor:
        """1.0 where A > 0, shaped as `values`."""
        return indicator_above(self.values, 0.0)

    @cached_property
    def mass(self) -> Tensor:
        """[N] float64: sum of |A| over each sequence's tokens."""
        if self.a_token:
            return self.segments.sum(self.values.abs())
        return self.values.abs().double() * self.segments.counts

    @cached_property
    def sign_groups(self) -> Tensor:
        """[T] int32: 0 where A < 0, 1 where A == 0, 2 where A > 0."""
        signs = torch.sign(self.values).int().add_(1)
        return signs if self.a_token else self.segments.spread(signs)

    @cached_property
    def sequence_sign_groups(self) -> Tensor:
        """[N] int32 as `sign_groups`, by the sign of the sequence's mean advantage."""
        means = self.segments.sum(self.values) if self.a_token else self.values
        return torch.sign(means).int().add_(1)
