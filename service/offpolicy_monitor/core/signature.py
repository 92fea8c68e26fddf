"""Sums that known bugs leave their marks in: a regression, products of neighbours, and values on a grid.

Every function is one pass over columns of log-probs, and its sums add up over blocks. What a mark means is not known
here. Shapes: T tokens, `a` and `b` the log-probs of numerator and denominator, d = a - b in nats; `valid` [T] bool or
None for all, and a value that is not valid is 0.
"""

from typing import Final, NamedTuple

import torch
from torch import Tensor

from offpolicy_monitor.core.cells import tally
from offpolicy_monitor.core.checks import check

#: Grids are steps of 2^-k for these k.
GRIDS: Final = (3, 4, 5, 6, 7, 8)


class Format(NamedTuple):
    """A binary floating format: its patterns' integers, bits of the significand, bias, and bits beyond the first 11."""

    patterns: torch.dtype
    significand: int
    bias: int
    spare: int


FORMATS: Final = {torch.float32: Format(torch.int32, 23, 127, 13), torch.float64: Format(torch.int64, 52, 1023, 42)}


def regression_sums(d: Tensor, b: Tensor, valid: Tensor | None, lowest: float, highest: float) -> Tensor:
    """n, sum b, d, b^2, b d, d^2 over tokens with lowest < b < highest, and how many of them have d = 0.

    d, b: [T] of one float dtype -> [7] float64, what a least-squares line of d on b needs. Products are made in
    float64. Raises ValueError for another rank, TypeError for another dtype.
    """
    check("d", d, 1)
    check("b", b, 1, (d.dtype,))
    middling = (b > lowest) & (b < highest)
    if valid is not None:
        middling = middling & valid
    columns = torch.stack([torch.ones_like(d), b, d]).mul_(middling).double()
    (n, sum_b, sum_d), (_, b_square, b_d), (_, _, d_square) = (row.unbind() for row in (columns @ columns.T).unbind())
    exact = (middling & (d == 0)).sum().double()
    return torch.stack([n, sum_b, sum_d, b_square, b_d, d_square, exact])


def neighbour_sums(a: Tensor, b: Tensor, valid: Tensor | None, owners: Tensor) -> Tensor:
    """Sums over pairs (t, u) of neighbours, valid tokens of one sequence with none between: [T], [T] -> [11] float64.

    owners [T] int64: the sequence of each token, ascending. n; sum a, b, a^2, b^2 over the first of each pair, then
    over the second; sum a_t b_u and sum a_u b_t. Raises ValueError for another rank, TypeError for another dtype.
    """
    check("a", a, 1)
    check("b", b, 1, (a.dtype,))
    later = len(a) - 1
    pair = torch.stack([a, b])
    second = pair.narrow(1, 1, later)
    if valid is None:
        first, together = pair.narrow(1, 0, later), owners.narrow(0, 1, later) == owners.narrow(0, 0, later)
    else:
        indices = torch.arange(len(a), device=a.device)
        before = torch.cummax(torch.where(valid, indices, -1), 0).values.narrow(0, 0, later)
        there = before.clamp(min=0)
        first = pair.index_select(1, there)
        own = owners.index_select(0, there) == owners.narrow(0, 1, later)
        together = valid.narrow(0, 1, later) & (before >= 0) & own
    columns = torch.cat([torch.ones_like(first.narrow(0, 0, 1)), first, second])
    columns = torch.where(together, columns, 0.0).double()
    (n, *sums), (_, a_first, _, _, forward), (_, _, b_first, backward, _), (_, _, _, a_second, _), (*_, b_second) = (
        row.unbind() for row in (columns @ columns.T).unbind()
    )
    return torch.stack([n, *sums[:2], a_first, b_first, *sums[2:], a_second, b_second, forward, backward])


def grid_counts(values: Tensor, least: Tensor) -> Tensor:
    """Of |value| >= least: how many, how many have at most 11 significant bits, and of those, for each k of GRIDS, how
    many are multiples of 2^-k: values [K, T] float32 or float64, least [K] above 0 -> [K, 8] float64.

    float16 has 11 bits and bfloat16 has 8; of values that are not rounded one in 2^13 has so few. A value is a multiple
    of 2^-k where its lowest bit that is set weighs as much. Raises ValueError for another rank, TypeError for another
    dtype.
    """
    check("values", values, 2)
    form = FORMATS[values.dtype]
    pattern = values.view(form.patterns)
    significand = (pattern & ((1 << form.significand) - 1)) | (1 << form.significand)
    lowest = (significand & -significand).to(values.dtype).view(form.patterns) >> form.significand
    lowest = lowest - form.bias
    weight = ((pattern >> form.significand) & (2 * form.bias + 1)) + lowest
    coarseness = (weight - (form.bias + form.significand - GRIDS[-1] - 1)).clamp(0, len(GRIDS))
    kind = ((coarseness + 1) * (lowest >= form.spare) + 1) * (values.abs() >= least[:, None])
    counts = tally(kind, len(GRIDS) + 3)
    at_least = counts.flip(1).cumsum(1).flip(1)  # of each kind or a coarser one
    return torch.cat([at_least.narrow(1, 1, 2), at_least.narrow(1, 3, len(GRIDS)).flip(1)], 1)
