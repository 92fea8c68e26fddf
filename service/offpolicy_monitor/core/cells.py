"""Sums over tokens by cell: one cell number a token serves several ways to divide the tokens at once.

Shapes: T tokens, C cells. A cell number is made of one place a dimension; what the dimensions are is not known here.
On the CPU tokens are added in runs of equal cells, which are brought together first where they are scattered: half the
time of adding each token to its cell. Elsewhere torch.bincount does the work.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

#: Runs shorter than this on average are brought together by sorting before they are added.
SHORT_RUN = 8


@dataclass(frozen=True, eq=False)
class Cells:
    """The cell of each token: numbers [T], integers in 0..number-1."""

    numbers: Tensor
    number: int

    @classmethod
    def joint(cls, places: Sequence[Tensor], sizes: Sequence[int]) -> "Cells":
        """Of one place a dimension: places [T] each, place i in 0..sizes[i]-1."""
        numbers, number = places[0], sizes[0]
        for place, size in zip(places[1:], sizes[1:], strict=True):
            numbers, number = numbers.int() * size + place, number * size
        return cls(numbers, number)

    def selected(self, tokens: Tensor | None) -> "Cells":
        """The cells of these tokens [n] alone; all of them if None."""
        return self if tokens is None else Cells(self.numbers[tokens], self.number)

    def sums(self, columns: Sequence[Tensor]) -> Tensor:
        """Counts and sums by cell: columns [T] float each -> [1 + len(columns), C] float64."""
        if self.numbers.device.type == "cpu":
            return torch.from_numpy(np.stack([self._run_counts, *map(self._run_sums, columns)]))
        numbers = self.numbers.long()
        counts = torch.bincount(numbers, minlength=self.number).double()
        added = [torch.bincount(numbers, column.double(), minlength=self.number) for column in columns]
        return torch.stack([counts, *added])

    @cached_property
    def _order(self) -> "np.ndarray | None":
        """Places that bring equal cells together, or None where they stand together already."""
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
    """Sums by the places of one dimension: [K, C] over joint cells -> [K, sizes[dimension]]."""
    grid = sums.view(len(sums), *sizes)
    others = [axis + 1 for axis in range(len(sizes)) if axis != dimension]
    return grid.sum(dim=others) if others else grid
