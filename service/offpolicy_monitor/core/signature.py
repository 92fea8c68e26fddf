"""Sums that known bugs leave their marks in: a regression, products of neighbours, and values on a grid.

Every function is one pass over columns of finite log-probs, and its sums add up over blocks. What a mark means is not
known here. Shapes: T tokens of N sequences, `a` and `b` the log-probs of numerator and denominator, d = a - b in nats.
"""

from typing import Final

import torch
from torch import Tensor

from offpolicy_monitor.core.ragged import Segments, total

#: Grids are steps of 2^-k for these k.
GRIDS: Final = (3, 4, 5, 6, 7, 8)


def regression_sums(d: Tensor, b: Tensor, lowest: float, highest: float) -> tuple[Tensor, int]:
    """n, sum b, d, b^2, b d, d^2 over tokens with lowest < b < highest, and how many of them have d = 0.

    [T], [T] -> [6] float64, what a least-squares line of d on b needs. Every value is finite, so that a product with
    0 leaves a token out; that is half the cost of gathering the others.
    """
    chosen = ((b > lowest) & (b < highest)).to(b.dtype)
    count = total(chosen)
    b, d = b * chosen, d * chosen
    exact = int(count) - int(torch.count_nonzero(d))
    return torch.stack([count, *map(total, (b, d, b * b, b * d, d * d))]), exact


def neighbour_sums(a: Tensor, b: Tensor, d: Tensor, segments: Segments) -> Tensor:
    """Sums over pairs (t, t + 1) of neighbours inside a sequence: [T] each -> [12] float64.

    n; sum a, b, a^2, b^2 over the first of each pair, then over the second; sum a_t b_(t+1); sum x and x^2 with
    x = d_t b_(t+1) - d_(t+1) b_t. Sum x is sum a_t b_(t+1) - sum a_(t+1) b_t, which no symmetric correlation of
    neighbours moves, and sum x^2 is its variance where d is noise.
    """
    ends = torch.cumsum(segments.lengths, 0).to(a.device)
    last, first = ends - 1, torch.cat([ends.new_zeros(1), ends[:-1]])
    totals = torch.stack(_moments(a, b))
    heads = totals - torch.stack(_moments(a[last], b[last]))
    tails = totals - torch.stack(_moments(a[first], b[first]))
    forward, turning = a[:-1] * b[1:], d[:-1] * b[1:] - d[1:] * b[:-1]
    forward[last[:-1]] = 0  # the pairs that straddle two sequences
    turning[last[:-1]] = 0
    pairs = torch.tensor([float(segments.tokens - segments.sequences)], dtype=torch.float64, device=a.device)
    products = torch.stack([total(forward), total(turning), total(turning * turning)])
    return torch.cat([pairs, heads, tails, products])


def grid_counts(values: Tensor) -> list[int]:
    """How many values are not 0, then how many of those are multiples of 2^-k for each k of GRIDS: [T] -> 7 counts.

    Scaling by a power of two is exact, so that what is rounded to a grid is found and nothing else but for one value
    in 2^(23 - k). Only what lies on the finest grid is looked at again.
    """
    scaled = values * float(2 ** GRIDS[-1])
    fine = scaled[torch.nonzero(scaled == scaled.round()).squeeze(1)]
    fine = fine[fine != 0]
    counts = [int((torch.remainder(fine, 2.0 ** (GRIDS[-1] - k)) == 0).sum()) for k in GRIDS]
    return [int(torch.count_nonzero(values)), *counts]


def _moments(a: Tensor, b: Tensor) -> list[Tensor]:
    return [total(values) for values in (a, b, a * a, b * b)]
