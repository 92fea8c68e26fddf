"""Counts and sums of many values by cell, with a number of cells that is known before.

Shapes: n values, K columns. Values are added to their cells, and not counted by bincount, which looks at its input for
the number of cells and makes a GPU wait. Counts are exact; on a GPU the order of other sums is not fixed, so that they
repeat to float64 rounding.
"""

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor

from offpolicy_monitor.core.checks import INTEGERS, NUMBERS, check
from offpolicy_monitor.core.device import constant


class Tally(NamedTuple):
    """What is counted: cells [K, n] of integers in 0..number-1, with each of these weights [K, n]; None for 1."""

    cells: Tensor
    number: int
    weights: Sequence[Tensor | None] = (None,)


def tallies(*parts: Tally) -> list[Tensor]:
    """How many values, or how much weight, each cell of each row of some parts has: [W, K, number] float64 of each.

    There is one part at least, and the cells of all are emptied together. Counts have no denominator; weights are of
    any number's dtype. Raises ValueError for another rank or shape, TypeError for another dtype.
    """
    for cells, _, weights in parts:
        check("cells", cells, -1, -1, of=INTEGERS)
        for known in weights:
            check("weights", known, *cells.shape, of=NUMBERS)
    shapes = [(len(part.weights), len(part.cells), part.number) for part in parts]
    sizes = list(map(math.prod, shapes))
    zeros = torch.zeros(sum(sizes), dtype=torch.float64, device=parts[0].cells.device)
    found = [own.view(shape) for own, shape in zip(torch.split(zeros, sizes), shapes, strict=True)]
    for part, counts in zip(parts, found, strict=True):
        cells = part.cells.long()
        for own, added in zip(counts.unbind(), part.weights, strict=True):
            if added is None:
                own.scatter_(1, cells, 1.0, reduce="add")
            else:
                own.scatter_add_(1, cells, added.double())
    return found


class Division(NamedTuple):
    """A way to divide values: `cells` [n], integers in 0..size-1."""

    cells: Tensor
    size: int


def sums_by(divisions: Sequence[Division], columns: Sequence[Tensor], copies: int = 1) -> list[Tensor]:
    """Counts and sums of K columns by the cells of each division, of which there is one at least.

    [n] float each -> [size, 1 + K] float64 each.

    Of many values a GPU adds neighbours to different `copies` of the cells: threads that add to one number wait for
    each other. Sums have no denominator. Raises ValueError for another rank or length, TypeError for another dtype.
    """
    first = divisions[0].cells
    check("cells", first, -1, of=INTEGERS)
    number, device = len(first), first.device
    for division in divisions[1:]:
        check("cells", division.cells, number, of=INTEGERS)
    for column in columns:
        check("column", column, number)
    values = torch.stack([constant(1.0, torch.float64, device).expand(number), *columns], -1)
    sizes, cells = [division.size for division in divisions], [division.cells for division in divisions]
    sums = torch.zeros((copies, sum(sizes), values.shape[1]), dtype=torch.float64, device=device)
    if copies > 1:
        firsts = constant(range(0, copies * sum(sizes), sum(sizes)), torch.int32, device)
        cells = list((torch.stack(cells) + firsts.repeat(-(-number // copies))[:number]).unbind())
    for own, begin in zip(cells, accumulate(sizes, initial=0), strict=False):
        sums.flatten(0, 1)[begin:].index_add_(0, own, values)
    return list(torch.split(sums.sum(0) if copies > 1 else sums[0], sizes))
