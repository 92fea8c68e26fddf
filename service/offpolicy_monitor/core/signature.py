"""Sums that known bugs leave their marks in: a regression, products of neighbours, and values on a grid.

Every function is one pass over columns of log-probs, and its sums add up over blocks. What a mark means is not known
here. Shapes: T tokens, `a` and `b` the log-probs of numerator and denominator, d = a - b in nats; of a token
that is not valid all three are 0.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import torch
from torch import Tensor

from offpolicy_monitor.core.checks import check
from offpolicy_monitor.core.device import constant
from offpolicy_monitor.core.ragged import products, total

#: Grids are steps of 2^-k for these k.
GRIDS: Final = (3, 4, 5, 6, 7, 8)
#: Of each dtype the integers of its patterns, and how many bits a significand has beyond the first 11.
SPARE_BITS: Final = {torch.float32: (torch.int32, 13), torch.float64: (torch.int64, 42)}


def regression_sums(d: Tensor, b: Tensor, lowest: float, highest: float) -> Tensor:
    """Sums of products of 1, b, d and (d = 0), each with each, over tokens with lowest < b < highest <= 0, nats.

    d, b: [T] of one float dtype -> [4, 4] float64: what a least-squares line of d on b needs, and in the last column
    how many tokens agree exactly. A token that is not valid has b = 0, and is in no sum. Products are made in float64.
    Raises ValueError for another rank or length, TypeError for another dtype.
    Source: https://en.wikipedia.org/wiki/Ordinary_least_squares
    """
    check("d", d, -1)
    check("b", b, len(d), of=(d.dtype,))
    number = np.float64 if b.dtype == torch.float64 else np.float32
    edges = constant([lowest, float(np.nextafter(number(highest), number(-np.inf)))], b.dtype, b.device)
    return _products([b, d, d == 0], torch.bucketize(b, edges) == 1)  # of what is beyond the first edge, to the second


def neighbour_sums(sides: Tensor, owners: Tensor, tokens: Tensor | None = None) -> Tensor:
    """Sums of products of 1, a_t, b_t, a_u and b_u, each with each, over pairs (t, u) of neighbours.

    Neighbours are valid tokens of one sequence with none between. sides: [2, T] float32 or float64, a and b, nats;
    owners [T] int64: the sequence of each token, ascending; tokens [V] int64: which are valid, ascending, None for all
    -> [5, 5] float64. Raises ValueError for another rank or length, TypeError for another dtype.
    Source: https://en.wikipedia.org/wiki/Autocorrelation
    """
    check("sides", sides, 2, -1)
    check("owners", owners, sides.shape[1], of=(torch.int64,))
    check("tokens", tokens, -1, of=(torch.int64,))
    if tokens is not None:
        sides, owners = sides.index_select(1, tokens), owners.index_select(0, tokens)
    pairs = max(len(owners) - 1, 0)
    together = owners.narrow(0, len(owners) - pairs, pairs) == owners.narrow(0, 0, pairs)
    return _products([*sides.narrow(1, 0, pairs), *sides.narrow(1, len(owners) - pairs, pairs)], together)


def grid_counts(values: Tensor, least: Tensor) -> Tensor:
    """Of |value| >= least: how many, how many have at most 11 significant bits, and of those, for each k of GRIDS, how
    many are multiples of 2^-k: values [K, T] float32 or float64, least [K] above 0 -> [8, K] float64.

    float16 has 11 bits and bfloat16 has 8; of values that are not rounded one in 2^13 has so few. Raises ValueError for
    another rank or length, TypeError for another dtype. Source of the formats: https://arxiv.org/abs/1905.12322
    """
    check("values", values, -1, -1)
    check("least", least, len(values), of=(values.dtype,))
    patterns, spare = SPARE_BITS[values.dtype]
    large = values.abs() >= least[:, None]
    few = large & ((values.view(patterns) & ((1 << spare) - 1)) == 0)
    steps = constant([2.0**-k for k in GRIDS], values.dtype, values.device)[:, None, None]
    return total(torch.cat([large[None], few[None], few & (torch.fmod(values, steps) == 0)]))


def _products(columns: Sequence[Tensor], where: Tensor) -> Tensor:
    """Sums of products of 1 and of K columns, each with each, where marked: [n] each, [n] bool -> [1 + K, 1 + K]."""
    one = constant(1.0, torch.float64, where.device).expand(len(where))  # takes no memory, and makes all float64
    return products(torch.stack([one, *columns]) * where)
