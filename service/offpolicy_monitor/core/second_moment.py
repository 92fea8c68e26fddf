"""Where M2PO cuts: the tokens of largest d^2 go until the mean d^2 of the rest is small enough.

One order of the magnitudes serves every threshold of a gap, so that a request is sorted once however many rows ask;
what a row keeps of it are two numbers. Shapes: T tokens of a whole request, since the mean is over all of them. Source:
M2PO, https://arxiv.org/abs/2510.01161
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from offpolicy_monitor.core.checks import check


class Cut(NamedTuple):
    """Tokens with |d| > size go, and of those of that size the first ones, up to the token `last`: 0-dim each.

    size is in the dtype of the log-ratios, +inf where nothing goes; last int64, -1 where none of that size goes.
    """

    size: Tensor
    last: Tensor


class SecondMoments:
    """Of log-ratio magnitudes, for thresholds of their mean square: |d| [T] finite, valid [T] bool or None for all.

    Raises ValueError for another rank, TypeError for another dtype.
    """

    def __init__(self, magnitudes: Tensor, valid: Tensor | None = None) -> None:
        check("magnitudes", magnitudes, 1)
        self._magnitudes = magnitudes if valid is None else torch.where(valid, magnitudes, torch.inf)
        self._places = torch.arange(len(magnitudes), device=magnitudes.device)
        self._ordered = _ascending(self._magnitudes)
        means = torch.cumsum(self._ordered.double().square(), 0) / (self._places + 1)
        self._means = torch.where(torch.isinf(self._ordered), torch.inf, means)

    def cut(self, threshold: float) -> Cut:
        """As many tokens stay as can, the smallest first, with a mean d^2 of at most the threshold, T >= 1.

        Among equals the earlier ones go first.
        """
        least = torch.full((), threshold, dtype=torch.float64, device=self._places.device)
        kept = torch.searchsorted(self._means, least, right=True)
        size = torch.take(self._ordered, kept.clamp(max=len(self._places) - 1))
        size = torch.where(kept == len(self._places), torch.inf, size)
        going = torch.searchsorted(self._ordered, size, right=True) - kept
        equal = self._magnitudes == size
        first = equal & (equal.cumsum(0) <= going)
        return Cut(size, torch.where(first, self._places, -1).amax())


def beyond(cuts: list[Cut], magnitudes: Tensor, start: int) -> Tensor:
    """Which tokens go: |d| [R, n] of the tokens from `start` on, a cut for each row -> [R, n] bool."""
    size, last = (torch.stack(part)[:, None] for part in zip(*cuts, strict=True))
    places = torch.arange(start, start + magnitudes.shape[1], device=magnitudes.device)
    return (magnitudes > size) | ((magnitudes == size) & (places <= last))


def _ascending(values: Tensor) -> Tensor:
    """numpy's sort is four times as fast on a CPU."""
    if values.device.type == "cpu":
        return torch.from_numpy(np.sort(values.numpy()))
    return torch.sort(values).values
