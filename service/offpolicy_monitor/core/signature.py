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
#: Bits of a significand beyond its first 11.
SPARE_BITS: Final = {
    torch.float32: torch.tensor((1 << 13) - 1, dtype=torch.int32),
    torch.float64: torch.tensor((1 << 42) - 1, dtype=torch.int64),
}


def regression_sums(d: Tensor, b: Tensor, lowest: float, highest: float) -> tuple[Tensor, int]:
    """n, sum b, d, b^2, b d, d^2 over tokens with lowest < b < highest, and how many of them have d = 0.

    [T], [T] -> [6] float64, what a least-squares line of d on b needs. Products are made in float64.
    """
    chosen = torch.nonzero((b > lowest) & (b < highest)).squeeze(1)
    pair = torch.stack([b[chosen], d[chosen]]).double()
    (b_square, b_d), (_, d_square) = pair @ pair.T
    count = torch.tensor([len(chosen)], dtype=torch.float64, device=b.device)
    exact = len(chosen) - int(torch.count_nonzero(pair[1]))
    return torch.cat([count, pair.sum(1), torch.stack([b_square, b_d, d_square])]), exact


def neighbour_sums(a: Tensor, b: Tensor, segments: Segments) -> Tensor:
    """Sums over pairs (t, t + 1) of neighbours inside a sequence: [T], [T] -> [11] float64.

    n; sum a, b, a^2, b^2 over the first of each pair, then over the second; sum a_t b_(t+1) and sum a_(t+1) b_t.
    """
    ends = torch.cumsum(segments.lengths, 0).to(a.device)
    last, first = ends - 1, torch.cat([ends.new_zeros(1), ends[:-1]])
    totals = torch.stack(_moments(a, b))
    heads = totals - torch.stack(_moments(a[last], b[last]))
    tails = totals - torch.stack(_moments(a[first], b[first]))
    forward, backward = a[:-1] * b[1:], a[1:] * b[:-1]
    straddling = last[:-1]
    products = [total(of) - total(of[straddling]) for of in (forward, backward)]
    pairs = torch.tensor([float(segments.tokens - segments.sequences)], dtype=torch.float64, device=a.device)
    return torch.cat([pairs, heads, tails, torch.stack(products)])


def grid_counts(values: Tensor, least: float) -> list[int]:
    """Of |value| >= least: how many, how many have at most 11 significant bits, and of those, for each k of GRIDS, how
    many are multiples of 2^-k: [T] float32 or float64 -> 8 counts.

    float16 has 11 bits and bfloat16 has 8; of values that are not rounded one in 2^13 has so few. Only those that have
    are looked at again, and scaling by a power of two is exact.
    """
    large = values.abs() >= least
    mask = SPARE_BITS[values.dtype]
    short = (values.view(mask.dtype) & mask) == 0
    few = values[torch.nonzero(short & large).squeeze(1)] * float(2 ** GRIDS[-1])
    counts = [int((torch.remainder(few, 2.0 ** (GRIDS[-1] - k)) == 0).sum()) for k in GRIDS]
    return [int(torch.count_nonzero(large)), len(few), *counts]


def _moments(a: Tensor, b: Tensor) -> list[Tensor]:
    return [total(values) for values in (a, b, a * a, b * b)]
