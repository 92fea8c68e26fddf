"""Sums over tokens by cell: one pass of a cell number a token serves several ways to divide the tokens at once.

Shapes: T tokens, C cells. A cell number is made of one place a dimension; what the dimensions are is not known here.
"""

from collections.abc import Sequence

import torch
from torch import Tensor


def joint_cells(places: Sequence[Tensor], sizes: Sequence[int]) -> Tensor:
    """The cell of each token: places [T] int64 each, place i in 0..sizes[i]-1 -> [T] int64 below their product."""
    cells = places[0]
    for place, size in zip(places[1:], sizes[1:], strict=True):
        cells = cells * size + place
    return cells


def cell_sums(cells: Tensor, number: int, columns: Sequence[Tensor]) -> Tensor:
    """Counts and sums by cell: cells [T] int64, columns [T] float each -> [1 + len(columns), C] float64."""
    counts = torch.bincount(cells, minlength=number).double()
    return torch.stack([counts, *(torch.bincount(cells, column.double(), minlength=number) for column in columns)])


def marginal(sums: Tensor, sizes: Sequence[int], dimension: int) -> Tensor:
    """Sums by the places of one dimension: [K, C] over joint cells -> [K, sizes[dimension]]."""
    grid = sums.view(len(sums), *sizes)
    others = [axis + 1 for axis in range(len(sizes)) if axis != dimension]
    return grid.sum(dim=others) if others else grid
