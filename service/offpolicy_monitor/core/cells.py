"""Counts and sums of many values by cell, with a number of cells that is known before.

Shapes: n values, C cells, K columns. On the CPU bincount and reduceat add up, elsewhere index_add: bincount looks at
its input for the number of cells, and makes a GPU wait. Counts are exact; on a GPU the order of other sums is not
fixed, so that they repeat to float64 rounding.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import torch
from torch import Tensor

from offpolicy_monitor.core.checks import DOUBLE, INTEGERS, NUMBERS, check, check_shape

#: Runs shorter than this on average are brought together by sorting before they are added.
SHORT_RUN: Final = 8


def tally(cells: Tensor, number: int, weights: Tensor | None = None) -> Tensor:
    """How many values, or how much weight, each cell of each row has: cells [K, n] int -> [K, number] float64.

    cells are in 0..number-1; weights [K, n] of any number's dtype, or None for counts, which have no denominator.
    Raises ValueError for another rank or shape, TypeError for another dtype.
    """
    check("cells", cells, 2, INTEGERS)
    if weights is not None:
        check("weights", weights, 2, NUMBERS)
        check_shape("weights", weights, *cells.shape)
    if cells.device.type == "cpu":
        rows = torch.arange(len(cells), dtype=cells.dtype)[:, None] * number
        added = None if weights is None else weights.reshape(-1).double()
        counts = torch.bincount((cells + rows).view(-1), added, minlength=len(cells) * number)
        return counts.double().view(len(cells), number)
    counts = torch.zeros((len(cells), number), dtype=torch.float64, device=cells.device)
    if weights is None:
        return counts.scatter_(1, cells.long(), 1.0, reduce="add")
    return counts.scatter_add_(1, cells.long(), weights.double())


@dataclass(frozen=True, eq=False)
class Columns:
    """K columns [n] float each, to be summed by several ways to divide the values: stacked once, not so on the CPU."""

    parts: Sequence[Tensor]

    @cached_property
    def stacked(self) -> Tensor:
        """[n, 1 + K] float64: a one, and the columns."""
        return torch.stack([torch.ones_like(self.parts[0]), *self.parts], -1).double()


@dataclass(frozen=True, eq=False)
class Cells:
    """The cell of each value: numbers [n], integers in 0..number-1; for sums of many columns.

    On the CPU values are added in runs of equal cells, which are brought together first where they are scattered: half
    the time of adding each value to its cell.
    """

    numbers: Tensor
    number: int

    @classmethod
    def joint(cls, indices: Sequence[Tensor], sizes: Sequence[int]) -> "Cells":
        """One number for several ways to divide the values: indices [n] each, the i-th in 0..sizes[i]-1."""
        numbers, number = indices[0], sizes[0]
        for index, size in zip(indices[1:], sizes[1:], strict=True):
            numbers, number = torch.add(index, numbers, alpha=size), number * size
        return cls(numbers, number)

    def sums(self, columns: Columns) -> Tensor:
        """Counts and sums by cell: [1 + K, C] float64."""
        if self.numbers.device.type == "cpu":
            return torch.from_numpy(np.stack([self._run_counts, *map(self._run_sums, columns.parts)]))
        values = columns.stacked
        added = torch.zeros((self.number, values.shape[1]), dtype=torch.float64, device=values.device)
        return added.index_add_(0, self.numbers, values).T

    @cached_property
    def _order(self) -> "np.ndarray | None":
        """Indices that bring equal cells together, or None where they stand together already."""
        cells = self.numbers.numpy()
        changes = int(np.count_nonzero(cells[1:] != cells[:-1]))
        return np.argsort(cells, kind="stable") if changes * SHORT_RUN > len(cells) else None

    @cached_property
    def _runs(self) -> "tuple[np.ndarray, np.ndarray]":
        """Where each run of equal cells begins, and its cell."""
        cells = self.numbers.numpy()
        cells = cells if self._order is None else cells[self._order]
        begins = np.concatenate([[0], np.flatnonzero(cells[1:] != cells[:-1]) + 1])
        return begins, cells[begins].astype(np.int64)

    @cached_property
    def _run_counts(self) -> "np.ndarray":
        begins, cells = self._runs
        return np.bincount(cells, np.diff(begins, append=len(self.numbers)), minlength=self.number)

    def _run_sums(self, column: Tensor) -> "np.ndarray":
        begins, cells = self._runs
        values = column.numpy() if self._order is None else column.numpy().take(self._order)
        return np.bincount(cells, np.add.reduceat(values, begins, dtype=np.float64), minlength=self.number)


def marginal(sums: Tensor, sizes: Sequence[int], dimension: int) -> Tensor:
    """Sums by the indices of one dimension: [K, C] float64 over joint cells -> [K, sizes[dimension]] float64.

    Raises ValueError for another rank, TypeError for another dtype.
    """
    check("sums", sums, 2, DOUBLE)
    grid = sums.reshape(len(sums), *sizes)
    others = [axis + 1 for axis in range(len(sizes)) if axis != dimension]
    return grid.sum(dim=others) if others else grid
