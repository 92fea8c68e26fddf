"""Counts and sums of many values by cell, with a number of cells that is known before.

Shapes: n values, W weights, K columns. Values are added to their cells, and not counted by bincount, which looks at its
input for the number of cells and makes a GPU wait. Counts are exact; on a GPU the order of other sums is not fixed, so
that they repeat to float64 rounding.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from offpolicy_monitor.core.checks import INTEGERS, NUMBERS, check
from offpolicy_monitor.core.device import constant


@dataclass(frozen=True, eq=False)
class Tally:
    """What is counted: how many values each cell of each row has, or how much weight, [W, ..., number] float64.

    cells    [..., n]: integers in 0..number-1
    weights  [..., n] each, of any number's dtype; with fewer dimensions, the same for all along the first; None for 1

    Raises ValueError for another rank or shape, TypeError for another dtype.
    """

    cells: Tensor
    number: int
    weights: Sequence[Tensor | None] = (None,)

    def __post_init__(self) -> None:
        check("cells", self.cells, of=INTEGERS)
        for known in self.weights:
            if known is not None:
                check("weights", known, *self.cells.shape[-known.ndim :], of=NUMBERS)

    @property
    def device(self) -> torch.device:
        """Where it is counted."""
        return self.cells.device

    @property
    def shape(self) -> tuple[int, ...]:
        """That of the counts."""
        return len(self.weights), *self.cells.shape[:-1], self.number

    def added_to(self, zeros: Tensor) -> Tensor:
        """The counts, in zeros of `shape`."""
        cells = self.cells.long()
        for own, added in zip(zeros.unbind(), self.weights, strict=True):
            if added is None:
                own.scatter_(-1, cells, 1.0, reduce="add")
            else:
                own.scatter_add_(-1, cells, added.double().expand_as(cells))
        return zeros


@dataclass(frozen=True, eq=False)
class Divided:
    """What is added up: of each cell of some divisions a count and K sums, one division after the other.

    Comes to [sum of sizes, 1 + K] float64.

    divisions  by name: which cell each value is in, [n] integers in 0..size-1, and the size; one division at least
    columns    the values, [n] float each
    copies     to how many copies of the cells a GPU adds neighbours: threads that add to one number wait for each other

    Raises ValueError without a division and for another rank or length, TypeError for another dtype.
    """

    divisions: Mapping[str, tuple[Tensor, int]]
    columns: Sequence[Tensor]
    copies: int = 1

    def __post_init__(self) -> None:
        if not self.divisions:
            raise ValueError("nothing is divided")
        check("cells", self._cells[0], -1, of=INTEGERS)
        for values in self._cells[1:]:
            check("cells", values, len(self._cells[0]), of=INTEGERS)
        for values in self.columns:
            check("column", values, len(self._cells[0]))

    @property
    def device(self) -> torch.device:
        """Where it is added up."""
        return self._cells[0].device

    @property
    def sizes(self) -> list[int]:
        """How many cells each division has."""
        return [size for _, size in self.divisions.values()]

    @property
    def shape(self) -> tuple[int, ...]:
        """That of the copies."""
        return self.copies, sum(self.sizes), 1 + len(self.columns)

    def added_to(self, zeros: Tensor) -> Tensor:
        """The counts and sums, of copies in zeros of `shape`."""
        cells, number, size = self._cells, len(self._cells[0]), sum(self.sizes)
        values = torch.stack([constant(1.0, torch.float64, self.device).expand(number), *self.columns], -1)
        if self.copies > 1:
            firsts = constant(range(0, self.copies * size, size), torch.int32, self.device)
            cells = list((torch.stack(cells) + firsts.repeat(-(-number // self.copies))[:number]).unbind())
        for own, begin in zip(cells, accumulate(self.sizes, initial=0), strict=False):
            zeros.flatten(0, 1)[begin:].index_add_(0, own, values)
        return zeros.sum(0) if self.copies > 1 else zeros[0]

    @property
    def _cells(self) -> list[Tensor]:
        return [cells for cells, _ in self.divisions.values()]


Part = Tally | Divided


def sums_by_cell(*parts: Part) -> list[Tensor]:
    """What each part comes to, float64. There is one part at least, and the cells of all are emptied together.

    Sums have no denominator.
    """
    sizes = [math.prod(part.shape) for part in parts]
    zeros = torch.zeros(sum(sizes), dtype=torch.float64, device=parts[0].device)
    return [part.added_to(own.view(part.shape)) for part, own in zip(parts, torch.split(zeros, sizes), strict=True)]
