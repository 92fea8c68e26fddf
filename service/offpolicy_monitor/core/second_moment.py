"""Where M2PO cuts: the tokens of largest d^2 go until the mean d^2 of the rest is small enough.

Shapes: T tokens of a whole request, since the mean is over all of them. One order of the magnitudes serves every
threshold, and what a threshold comes to is two numbers: thousands of them take no more memory than one. Source: M2PO,
https://arxiv.org/abs/2510.01161
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from offpolicy_monitor.core import device
from offpolicy_monitor.core.checks import MARKS, check


class Beyond(NamedTuple):
    """The tokens that go: those of |d| above `least`, and of those equal to it the ones up to token `last`.

    Both without dimensions, on the device.
    """

    least: Tensor
    last: Tensor

    def marks(self, magnitudes: Tensor, start: int = 0) -> Tensor:
        """Which of some tokens go if they are valid: |d| [n] float of those from token `start` on -> [n] bool.

        Raises ValueError for another rank, TypeError for another dtype.
        """
        check("magnitudes", magnitudes, -1)
        tokens = torch.arange(start, start + len(magnitudes), device=magnitudes.device)
        return (magnitudes > self.least) | ((magnitudes == self.least) & (tokens <= self.last))


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
    ordered = torch.nn.functional.pad(_ascending(magnitudes), (0, 1), value=torch.inf)
    number = torch.arange(1, len(ordered) + 1, device=ordered.device)
    means = torch.cumsum(ordered.square(), 0, dtype=torch.float64) / number

    def beyond(threshold: float) -> Beyond:
        kept = torch.searchsorted(means, device.constant([threshold], torch.float64, means.device), right=True)
        least = ordered.index_select(0, kept)  # of what goes; inf where nothing does
        equals = torch.searchsorted(ordered, least, right=True) - kept
        last = torch.searchsorted((magnitudes == least).cumsum(0), equals)
        return Beyond(least.select(0, 0), last.select(0, 0))

    return beyond


def _ascending(values: Tensor) -> Tensor:
    """numpy's sort is four times as fast on a CPU."""
    if device.is_host(values.device):
        return torch.from_numpy(np.sort(values.numpy()))
    return torch.sort(values).values
