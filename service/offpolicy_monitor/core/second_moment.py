"""Where M2PO cuts: the tokens of largest d^2 go until the mean d^2 of the rest is small enough.

Shapes: T tokens of a whole request, since the mean is over all of them. One ranking of the magnitudes serves every
threshold, and what a threshold comes to is one number: thousands of them take no more memory than one. Source: M2PO,
https://arxiv.org/abs/2510.01161
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from offpolicy_monitor.core import device
from offpolicy_monitor.core.checks import MARKS, check


class Beyond(NamedTuple):
    """The tokens that go: the first `number` of all, of which `ranks` tells each one's, 1 for the first that goes.

    ranks [T] int32, number [] int64, on the device. Tokens that are in no mean are among those that go.
    """

    ranks: Tensor
    number: Tensor

    def marks(self, start: int, tokens: int, dtype: torch.dtype = torch.bool) -> Tensor:
        """Which tokens go of so many from token `start` on: [tokens] of a dtype, 1 for those that go."""
        found = torch.empty(tokens, dtype=dtype, device=self.ranks.device)
        return torch.le(self.ranks.narrow(0, start, tokens), self.number, out=found)


def beyond_second_moment(magnitudes: Tensor, valid: Tensor | None = None) -> Callable[[float], Beyond]:
    """What goes for a threshold of the mean square: |d| [T] float, finite, T >= 1.

    As many stay as can, the smallest first, with a mean d^2 of at most the threshold; among equals the earlier ones go
    first. valid: [T] bool, or None for all; what is not valid is in no mean. The denominator is the valid tokens that
    stay. Raises ValueError for another rank or length, TypeError for another dtype.
    """
    check("magnitudes", magnitudes, -1)
    check("valid", valid, len(magnitudes), of=MARKS)
    if valid is not None:
        magnitudes = device.where(valid, magnitudes, torch.inf)
    means, ranks = _ranked(magnitudes)

    def beyond(threshold: float) -> Beyond:
        bound = device.constant([threshold], torch.float64, means.device)
        return Beyond(ranks, (len(ranks) - torch.searchsorted(means, bound, right=True)).select(0, 0))

    return beyond


def _ranked(magnitudes: Tensor) -> tuple[Tensor, Tensor]:
    """[T] float64: the mean square of the smallest, of the two smallest, and so on; [T] int32: the rank of each."""
    descending, order = torch.sort(magnitudes, descending=True, stable=True)
    number = torch.arange(1, len(order) + 1, dtype=torch.int32, device=order.device)
    means = torch.cumsum(descending.flip(0).square(), 0, dtype=torch.float64) / number
    return means, torch.empty_like(number).scatter_(0, order, number)
