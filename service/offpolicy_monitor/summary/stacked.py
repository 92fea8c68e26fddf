"""Stacked: a row of many summaries as one array, for who reads the same rows of fifty or two hundred steps.

A few array operations for all of them, where some for each would take longer than what is done with the numbers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from offpolicy_monitor.summary.arrays import Array, Arrays
from offpolicy_monitor.summary.rows import name_of
from offpolicy_monitor.summary.scheme import COUNTS, SUMS, Scheme

Integers = NDArray[np.int64]


class Stacked:
    """Rows of n arrays, in their order, by whole name."""

    def __init__(self, parts: Sequence[Arrays]) -> None:
        self.parts: Final = parts
        of_scheme: dict[int, list[int]] = {}
        for index, part in enumerate(parts):
            of_scheme.setdefault(id(part.scheme), []).append(index)
        self._groups = [_Group.of(parts, indices) for indices in of_scheme.values()]

    def __len__(self) -> int:
        return len(self.parts)

    def rows(self, name: str, shape: tuple[int, ...]) -> NDArray[np.float64]:
        """[n, *shape] float64: a row of each, or of a shape that has as many entries; 0 where one counted none."""
        found = np.zeros((len(self.parts), int(np.prod(shape))))
        for group in self._groups:
            if name in group.scheme.spans:
                group.write(name, found)
        found[[name in part.absent for part in self.parts]] = 0
        return found.reshape(-1, *shape)

    def total(self, name: str, shape: tuple[int, ...]) -> NDArray[np.float64]:
        """[*shape] float64: the sum of these rows."""
        if any(name in part.absent for part in self.parts):
            summed: NDArray[np.float64] = self.rows(name, shape).sum(0)
            return summed
        found = np.zeros(int(np.prod(shape)))
        for group in self._groups:
            if name in group.scheme.spans:
                group.add(name, found)
        return found.reshape(shape)

    def numbers(self, path: str, row: str) -> NDArray[np.float64]:
        """[n] float64: one number of the table at a path."""
        return self.rows(name_of(path, row), ())

    def has(self, path: str) -> NDArray[np.bool_]:
        """[n] bool: whether there is a table at a path."""
        found = np.zeros(len(self.parts), bool)
        for group in self._groups:
            found[group.indices] = path in group.scheme.paths
        return found


@dataclass(frozen=True)
class _Group:
    """Those of the parts that have one scheme, by their indices: `dense` ones, whose counts are written out, and `few`,
    of which it is known where counts are not zero."""

    parts: Sequence[Arrays]
    scheme: Scheme
    indices: Integers
    dense: Sequence[int]
    few: Integers

    @classmethod
    def of(cls, parts: Sequence[Arrays], indices: Sequence[int]) -> "_Group":
        dense = [index for index in indices if parts[index].is_written_out]
        few = [index for index in indices if not parts[index].is_written_out]
        return cls(parts, parts[indices[0]].scheme, np.array(indices), dense, np.array(few, np.int64))

    @cached_property
    def _entries(self) -> tuple[Integers, Integers]:
        """Of `few`, one after the other: where counts are not zero, and these. Entries of the i-th begin at i times the
        size of all counts, so that they ascend."""
        filled = [self.parts[index].filled for index in self.few]
        size = self.scheme.sizes[COUNTS]
        where = np.concatenate([where + number * size for number, (where, _) in enumerate(filled)])
        return where, np.concatenate([counts for _, counts in filled])

    def write(self, name: str, found: NDArray[np.float64]) -> None:
        """Write a row of these parts into found [all parts, entries]."""
        section, start, stop, _ = self.scheme.spans[name]
        for index in self.dense if section == COUNTS else self.indices:
            found[index] = self._stretch(index, section, start, stop)
        if section == COUNTS and len(self.few):
            part, entry, counts = self._among_few(start, stop)
            found[self.few[part], entry] = counts

    def add(self, name: str, found: NDArray[np.float64]) -> None:
        """Add a row of each of these parts to found [entries]."""
        section, start, stop, _ = self.scheme.spans[name]
        for index in self.dense if section == COUNTS else self.indices:
            found += self._stretch(index, section, start, stop)
        if section == COUNTS and len(self.few):
            _, entry, counts = self._among_few(start, stop)
            found += np.bincount(entry, counts, stop - start)

    def _stretch(self, index: int, section: int, start: int, stop: int) -> Array:
        part = self.parts[index]
        return part.counts[start:stop] if section == COUNTS else part.fractions[section - SUMS][start:stop]

    def _among_few(self, start: int, stop: int) -> tuple[Integers, Integers, Integers]:
        """Of the counts of `few` in a stretch those that are not zero: of which part, at which entry, how many."""
        where, counts = self._entries
        begins = np.arange(len(self.few)) * self.scheme.sizes[COUNTS]
        first, last = where.searchsorted(begins + start), where.searchsorted(begins + stop)
        part = np.repeat(np.arange(len(self.few)), last - first)
        # From first to last of each part, one part after the other.
        before = np.cumsum(last - first) - (last - first)
        chosen = np.arange(len(part)) + (first - before)[part]
        return part, where[chosen] - begins[part] - start, counts[chosen]
