"""The advantages of a set of tokens, one a sequence or one per token, in the forms that rules and sums need.

Shapes: T packed tokens, N non-empty sequences. A sequence's advantage stands at each of its tokens.
"""

from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

import torch
from torch import Tensor

from offpolicy_monitor.core.checks import check
from offpolicy_monitor.core.ragged import Segments


class Sign(IntEnum):
    """What the advantage of a token must be for a bound to hold: the places of `Advantages.signs`."""

    ANY = 0
    NEGATIVE = 1
    NOT_POSITIVE = 2
    POSITIVE = 3


@dataclass(frozen=True, eq=False)
class Advantages:
    """values [N] or [T] float, finite; `a_token` says which, since N may equal T."""

    values: Tensor
    a_token: bool
    segments: Segments

    def __post_init__(self) -> None:
        check("advantages", self.values, 1)
        expected = self.segments.tokens if self.a_token else self.segments.sequences
        if len(self.values) != expected:
            raise ValueError(f"advantages have shape {tuple(self.values.shape)}, expected ({expected},)")

    @cached_property
    def of_tokens(self) -> Tensor:
        """[T]: the advantage of each token."""
        return self.values if self.a_token else self.segments.spread(self.values)

    @cached_property
    def signs(self) -> Tensor:
        """[4, N] or [4, T] bool, as `values`: which of them each Sign is true of. A zero of either sign is none."""
        return torch.stack([self.values == self.values, self.values < 0, self.values <= 0, self.values > 0])

    @cached_property
    def token_signs(self) -> Tensor:
        """[4, T] bool: `signs` at each token."""
        return self.signs if self.a_token else self.segments.spread(self.signs)

    @cached_property
    def groups(self) -> Tensor:
        """[T] int32: 0 where A < 0, 1 where A == 0, 2 where A > 0."""
        signs = torch.sign(self.values).int().add_(1)
        return signs if self.a_token else self.segments.spread(signs)
