"""Counts and sums of many values by cell, with a number of cells that is known before.

Shapes: n values, C cells, K columns. On the CPU bincount and reduceat add up, elsewhere index_add: bincount looks at
its input for the number of cells, and makes a GPU wait. Counts are exact; on a GPU the order of other sums is not
fixed, so that they repeat to float64 rounding.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Final, NamedTuple

import numpy as np
import torch
from torch import Tensor

from offpolicy_monitor.core import host
from offpolicy_monitor.core.checks import FLOATS, INTEGERS, NUMBERS, check, check_shape
from offpolicy_monitor.core.constants import constant

#: Runs shorter than this on average are brought together by sorting before they are added.
SHORT_RUN: Final = 8
#: Joint cells beyond this many cost a small batch more than another pass; the next division starts its own number.
MOST_CELLS: Final = 1 << 12


class Tally(NamedTuple):
    """What is counted: cells [K, n] of integers in 0..number-1, with each of these weights [K, n]; None for 1."""

    cells: Tensor
    number: int
    weights: Sequence[Tensor | None] = (None,)


def tally(cells: Tensor, number: int, weights: Tensor | None = None) -> Tensor:
    """How many values, or how much weight, each cell of each row has: cells [K, n] int -> [K, number] float64.

    cells are in 0..number-1; weights [K, n] of any number's dtype, or None for counts, which have no denominator.
    Raises ValueError for another rank or shape, TypeError for another dtype.
    """
    return tallies(Tally(cells, number, (weights,)))[0].select(0, 0)


def tallies(*parts: Tally) -> list[Tensor]:
    """The same of several at a time, which are emptied together, and of W weights each: [W, K, number] float64 each.

    Raises ValueError for another rank or shape, TypeError for another dtype.
    """
    for cells, _, weights in parts:
        check("cells", cells, 2, INTEGERS)
        for known in (known for known in weights if known is not None):
            check("weights", known, 2, NUMBERS)
            check_shape("weights", known, *cells.shape)
    if host.holds(parts[0].cells.device):
        return [torch.stack([_counted(part, weights) for weights in part.weights]) for part in parts]
    shapes = [(len(part.weights), len(part.cells), part.number) for part in parts]
    zeros = torch.zeros(sum(map(math.prod, shapes)), dtype=torch.float64, device=parts[0].cells.device)
    found = [
        own.view(shape) for own, shape in zip(torch.split(zeros, list(map(math.prod, shapes))), shapes, strict=True)
    ]
    for part, counts in zip(parts, found, strict=True):
        cells = part.cells.long()
        for own, added in zip(counts.unbind(), part.weights, strict=True):
            if added is None:
                own.scatter_(1, cells, 1.0, reduce="add")
            else:
                own.scatter_add_(1, cells, added.double())
    return found


def _counted(part: Tally, weights: Tensor | None) -> Tensor:
    cells, number, _ = part
    rows = torch.arange(len(cells), dtype=cells.dtype)[:, None] * number
    added = None if weights is None else weights.reshape(-1).double()
    counts = torch.bincount((cells + rows).view(-1), added, minlength=len(cells) * number)
    return counts.double().view(len(cells), number)


class Division(NamedTuple):
    """A way to divide values: `cells` [n], integers in 0..size-1; `scattered` if neighbours seldom share one."""

    cells: Tensor
    size: int
    scattered: bool = False


def sums_by(divisions: Sequence[Division], columns: Sequence[Tensor], copies: int = 1) -> list[Tensor]:
    """Counts and sums of K columns by the cells of each division: [n] float each -> [size, 1 + K] float64 each.

    Of many values a GPU adds neighbours to different `copies` of the cells: threads that add to one number wait for
    each other. Sums have no denominator. Raises ValueError for another rank or length, TypeError for another dtype.
    """
    for column in columns:
        check("column", column, 1, FLOATS)
        check_shape("column", column, len(divisions[0].cells))
    if host.holds(columns[0].device):
        return _sums_on_cpu(divisions, columns)
    number, device = len(columns[0]), columns[0].device
    values = torch.stack([constant(1.0, torch.float64, device).expand(number), *columns], -1)
    sizes, cells = [division.size for division in divisions], [division.cells for division in divisions]
    sums = torch.zeros((copies, sum(sizes), values.shape[1]), dtype=torch.float64, device=device)
    if copies > 1:
        firsts = constant(range(0, copies * sum(sizes), sum(sizes)), torch.int32, device)
        by_turns = firsts.repeat(-(-number // copies))[:number]
        cells = [own + by_turns for own in cells]
    for own, begin in zip(cells, accumulate(sizes, initial=0), strict=False):
        sums.flatten(0, 1)[begin:].index_add_(0, own, values)
    return list(torch.split(sums.sum(0) if copies > 1 else sums[0], sizes))


def _sums_on_cpu(divisions: Sequence[Division], columns: Sequence[Tensor]) -> list[Tensor]:
    """By joint cells of several divisions, whose sums are those of each."""
    found = dict[int, Tensor]()
    for group in _together(divisions):
        sizes = [divisions[index].size for index in group]
        sums = _Cells.joint([divisions[index] for index in group]).sums(columns).view(*sizes, -1)
        for axis, index in enumerate(group):
            others = [other for other in range(len(group)) if other != axis]
            found[index] = sums.sum(others) if others else sums
    return [found[index] for index in range(len(divisions))]


def _together(divisions: Sequence[Division]) -> Iterator[list[int]]:
    """By index: those that are scattered alone; the others, which stand in runs, as many together as is cheap."""
    group: list[int] = []
    cells = 1
    for index, division in enumerate(divisions):
        if division.scattered:
            yield [index]
            continue
        if group and cells * division.size > MOST_CELLS:
            yield group
            group, cells = [], 1
        group.append(index)
        cells *= division.size
    if group:
        yield group


@dataclass(frozen=True, eq=False)
class _Cells:
    """Values on the CPU, by cell: numbers [n], integers in 0..number-1.

    They are added in runs of equal cells, which are brought together first where they are scattered: half the time of
    adding each value to its cell.
    """

    numbers: Tensor
    number: int

    @classmethod
    def joint(cls, divisions: Sequence[Division]) -> "_Cells":
        """One number for several divisions, the first of which counts most."""
        numbers, number = divisions[0].cells, divisions[0].size
        for cells, size, _ in divisions[1:]:
            numbers, number = torch.add(cells, numbers, alpha=size), number * size
        return cls(numbers, number)

    def sums(self, columns: Sequence[Tensor]) -> Tensor:
        """Counts and sums by cell: [C, 1 + K] float64."""
        return torch.from_numpy(np.stack([self._run_counts, *map(self._run_sums, columns)], -1))

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
