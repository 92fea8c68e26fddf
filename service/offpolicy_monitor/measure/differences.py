"""Differences of log-probs that are no gap's: of rescored ones, and of those on what the sampler chose among.

What the makers of tables ask for is made of a block together, by one product of matrices, and added up over the tokens
whose log-probs are all finite. Measured beside the gaps, on the device of their batch, and only where such log-probs
were sent. Shapes: T tokens of a block, R rows.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from torch import Tensor

from offpolicy_monitor.batch import Array
from offpolicy_monitor.core.differences import SUMMED, above, difference_terms, differences, exponentials_of
from offpolicy_monitor.core.gap import chosen
from offpolicy_monitor.core.ragged import products, total
from offpolicy_monitor.measure.blocks import Block, DeviceBatch

#: Before the names of the arrays.
NAME: Final = "differences"


class Difference(NamedTuple):
    """x: log-probs that are added, those that are taken off, and those that are to be finite too, by wire names."""

    added: tuple[str, ...]
    taken: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()


class Asked(NamedTuple):
    """What is asked of differences.

    products      sums of the products of any two of them, and of the square of each
    sums          the sums that core.differences.SUMMED names
    exponentials  the sum of exp(x)
    above         how many tokens are above a limit, and that limit
    """

    products: tuple[Difference, ...] = ()
    sums: tuple[Difference, ...] = ()
    exponentials: tuple[Difference, ...] = ()
    above: tuple[tuple[Difference, float], ...] = ()

    @classmethod
    def all_of(cls, parts: Iterable["Asked"]) -> "Asked":
        """All that any of them asks for, once."""
        return cls(*(tuple(dict.fromkeys(chain(*same))) for same in zip(*(cls(), *parts), strict=True)))


@dataclass(frozen=True, eq=False)
class Differences:
    """Those of a batch that are asked for: the same for all of its blocks."""

    asked: Asked
    batch: DeviceBatch

    @cached_property
    def rows(self) -> Mapping[Difference, int]:
        """The row of each. What is the same over the same tokens is one row; rows that are asked for one thing stand
        side by side where they can."""
        wanted = (*self.asked.products, *self.asked.sums, *self.asked.exponentials, *(x for x, _ in self.asked.above))
        rows = dict[Any, int]()
        over = _needed if self.batch.finite_tokens else lambda x: None
        return {x: rows.setdefault((x.added, x.taken, over(x)), len(rows)) for x in wanted}

    def sums_of(self, block: Block) -> dict[str, Tensor]:
        """Arrays of a block, which add up over blocks; none where nothing is asked."""
        if not self.rows:
            return {}
        span, asked = block.token_range, self.asked
        valid = None if self._valid is None else self._valid[:, span]
        log_probs = torch.stack([self.batch.log_probs[name][span] for name in self._names])
        d, found = differences(log_probs, self._weights, valid), dict[str, Tensor]()
        terms = list[Tensor]()  # added up together

        def of(rows: Tensor, wanted: Sequence[Difference]) -> Tensor:
            return chosen(rows, [self.rows[x] for x in wanted])

        if asked.products:
            found["products"] = products(of(d, asked.products))
        if asked.sums:
            terms += difference_terms(of(d, asked.sums))
        if asked.exponentials:
            own = None if valid is None else of(valid, asked.exponentials)
            terms.append(exponentials_of(of(d, asked.exponentials), own))
        if asked.above:
            wanted, limits = zip(*asked.above, strict=True)
            terms.append(above(of(d, wanted), limits))
        if terms:
            found["terms"] = total(torch.cat(terms))
        return {f"{NAME}/{name}": array for name, array in found.items()}

    @cached_property
    def _names(self) -> Sequence[str]:
        """The log-probs that are added or taken off."""
        return list(dict.fromkeys(name for x in self.rows for name in (*x.added, *x.taken)))

    @cached_property
    def _distinct(self) -> Sequence[Difference]:
        """A difference of each row."""
        return list({row: x for x, row in self.rows.items()}.values())

    @cached_property
    def _weights(self) -> Sequence[Sequence[int]]:
        return [[(name in x.added) - (name in x.taken) for name in self._names] for x in self._distinct]

    @cached_property
    def _marks(self) -> Array | None:
        """[R, tokens of the batch] bool on the host: those that are valid for each row; None where all are."""
        finite = self.batch.finite_tokens
        if not finite:
            return None
        all_tokens = np.ones(int(self.batch.offsets[-1]), np.bool_)
        return np.array([np.all([finite.get(name, all_tokens) for name in _needed(x)], 0) for x in self._distinct])

    @cached_property
    def _valid(self) -> Tensor | None:
        """The same on the device."""
        return None if self._marks is None else torch.from_numpy(self._marks).to(self.batch.device, non_blocking=True)

    @cached_property
    def tokens(self) -> Sequence[int]:
        """[R]: how many tokens of the batch are valid for each row."""
        if self._marks is None:
            return [int(self.batch.offsets[-1])] * len(self._distinct)
        return [int(np.count_nonzero(marks)) for marks in self._marks]


def _needed(x: Difference) -> frozenset[str]:
    """The log-probs that are to be finite."""
    return frozenset((*x.added, *x.taken, *x.beside))


class Found:
    """What arrays of a batch, on the host, say of its differences."""

    def __init__(self, differences: Differences, arrays: Mapping[str, Array]) -> None:
        self._differences, self._asked, self._arrays = differences, differences.asked, arrays

    def tokens(self, x: Difference) -> int:
        """How many are valid."""
        return self._differences.tokens[self._differences.rows[x]]

    def sums(self, x: Difference) -> dict[str, float]:
        """By the names in SUMMED."""
        return dict(zip(SUMMED, self._sums[0].reshape(len(SUMMED), -1)[:, self._asked.sums.index(x)], strict=True))

    def exponential(self, x: Difference) -> float:
        """The sum of exp(x)."""
        return float(self._sums[1][self._asked.exponentials.index(x)])

    def above(self, x: Difference, limit: float) -> int:
        """How many tokens are above a limit."""
        return int(self._sums[2][self._asked.above.index((x, limit))])

    def product(self, x: Difference, y: Difference) -> float:
        """The sum of x y."""
        first, second = map(self._asked.products.index, (x, y))
        return float(self._arrays[f"{NAME}/products"][first, second])

    @cached_property
    def _sums(self) -> Sequence[Array]:
        """Those of SUMMED, of exponentials, and the numbers above limits."""
        summed, exponentials = len(SUMMED) * len(self._asked.sums), len(self._asked.exponentials)
        return np.split(self._arrays[f"{NAME}/terms"], [summed, summed + exponentials])
