"""The advantages of a set of tokens, one per sequence or one per token, in the forms that rules and sums need.

Shapes: T packed tokens, N non-empty sequences. A sequence's advantage stands at each of its tokens.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from offpolicy_monitor.core.checks import check
from offpolicy_monitor.core.device import constant
from offpolicy_monitor.core.ragged import Segments


def signs_of(values: Tensor) -> Tensor:
    """0 where a value is below 0, 1 where it is 0 of either sign, 2 where it is above: [...] float -> [...] int64.

    Raises ValueError for a single number, TypeError for another dtype.
    """
    check("values", values)
    below_zero = -math.ulp(0.0) if values.dtype == torch.float64 else -(2.0**-149)
    return torch.bucketize(values, constant([below_zero, 0.0], values.dtype, values.device))


@dataclass(frozen=True, eq=False)
class Advantages:
    """values [N] or [T] float, finite; `per_token` says which, since N may equal T.

    Raises ValueError for another rank or length, TypeError for another dtype.
    """

    values: Tensor
    per_token: bool
    segments: Segments

    def __post_init__(self) -> None:
        check("advantages", self.values, self.segments.tokens if self.per_token else self.segments.sequences)

    @cached_property
    def of_tokens(self) -> Tensor:
        """[T] float64: the advantage of each token."""
        values = self.values.double()
        return values if self.per_token else self.segments.spread(values)

    @cached_property
    def magnitudes(self) -> Tensor:
        """[T] float64: |A| of each token."""
        return self.of_tokens.abs()

    @cached_property
    def groups(self) -> Tensor:
        """[N] or [T] int64, as `values`: 0 where A < 0, 1 where A == 0 of either sign, 2 where A > 0."""
        return signs_of(self.values)

    @cached_property
    def token_groups(self) -> Tensor:
        """[T] int64: `groups` at each token."""
        return self.groups if self.per_token else self.segments.spread(self.groups)
