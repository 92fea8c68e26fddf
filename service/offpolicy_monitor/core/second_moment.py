"""The order in which M2PO drops tokens: the largest d^2 first, until the mean d^2 of the rest is small enough.

One order serves every threshold, so that a request is sorted once however many rows ask. Shapes: T tokens of a whole
request, since the mean is over all of them.
"""

import torch
from torch import Tensor


class SecondMoments:
    """Of log-ratios [T], for thresholds of their mean square. Source: M2PO.

    ranks  [T] int64: each token's place from the smallest d^2 to the largest; among equals the earlier ranks higher
    """

    def __init__(self, log_ratio: Tensor) -> None:
        square = log_ratio.double().square()
        places = torch.arange(len(square), device=square.device)
        order = len(square) - 1 - torch.argsort(square.flip(0), stable=True)
        self.ranks = torch.empty_like(order)
        self.ranks[order] = places
        self._mean = float(square.mean()) if len(square) else 0.0
        self._sums = torch.cumsum(square[order], 0)

    def kept(self, threshold: float) -> int:
        """How many tokens stay, those of the lowest ranks: the most whose mean d^2 is at most the threshold."""
        tokens = len(self.ranks)
        if self._mean <= threshold:
            return tokens
        counts = torch.arange(1, tokens + 1, dtype=torch.float64, device=self._sums.device)
        fits = torch.nonzero(self._sums <= counts.mul_(threshold))
        return int(fits.amax()) + 1 if len(fits) else 0
