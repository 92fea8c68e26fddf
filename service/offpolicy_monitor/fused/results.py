"""What the pass makes of a part: named arrays over two flat ones, which are added, moved and emptied as a whole.

The same names over two flat arrays that count from 1 tell where each number lies: a slot. So tables are named once, by
slots (tables.py), and read by copying (moves.py).
"""

import math
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np

from offpolicy_monitor.fused.arrays import (
    BINS,
    CELL,
    DENSE,
    DENSITY,
    LENGTHS,
    MU_BUCKETS,
    OF_LENGTHS,
    RULE_SUMS,
    SEQUENCE_SUMS,
    TOKEN_SUMS,
    WEIGHT_SUMS,
    Counts,
    Doubles,
    Integers,
    Singles,
    Sums,
)
from offpolicy_monitor.fused.runs import BUCKETS
from offpolicy_monitor.fused.sequences import GAP_SUMS, QUARTERS, SequenceSums
from offpolicy_monitor.fused.sequences import RULE_SUMS as SEQUENCE_RULE_SUMS
from offpolicy_monitor.fused.token import MASS_KEYS
from offpolicy_monitor.summary import cells
from offpolicy_monitor.summary.tables import calibration, decimals

Shapes = Mapping[str, tuple[int, ...]]

#: Sums of probabilities: |p - q|, (p - q)^2, the largest |p - q|, p, q, p^2, q^2, p q.
PROBABILITIES: Final = 8


class Totals(NamedTuple):
    """What is made of all the rest once every token is counted (totals.py)."""

    size: Doubles  # [3]: tokens, sequences with one, pairs of neighbours
    gaps: Doubles  # [3, SEQUENCE_SUMS]: over all sequences
    product: Doubles  # [1]: m s
    probabilities: Doubles  # [3, PROBABILITIES]
    dropped: Doubles  # [token rules]
    dropped_of_sequences: Doubles  # [sequence rules]
    cells: Singles  # [C, 3, bins]
    by_length: Singles  # [C, 3, LENGTHS, coarse bins]


class Whole(NamedTuple):
    """Numbers of a batch whatever the gap, or their slots; those of what was not sent are 0."""

    tokens: Any
    sequences: Any
    empty_sequences: Any
    nonfinite_tokens: Any
    positive_tokens: Any
    exact_zero_tokens: Any
    zero_filled_tokens: Any
    entropy_tokens: Any
    entropy: Any
    reward_sequences: Any
    reward: Any
    spans: Any
    spanned_sequences: Any
    lag_tokens: Any
    lag: Any
    lag_max: Any
    sequence_lag: Any
    filled_sequences: Any


#: Parts of the table of the batch whose numbers are made of its columns as they were sent.
SENT_PARTS: Final = (calibration.TABLE, decimals.TABLE)

#: The numbers of Whole, and the rows of SENT_PARTS by their names.
WHOLE: Final = (*Whole._fields, *(row.name for table in SENT_PARTS for row in table.rows))


class Result(NamedTuple):
    """All that the pass makes of a part; what is an array of Doubles lies in `numbers`, of Singles in `counts`."""

    sums: Sums
    counts: Counts
    of_sequences: SequenceSums
    totals: Totals


class Flats(NamedTuple):
    """The arrays that hold a Result."""

    numbers: Doubles
    counts: Singles


class Size(NamedTuple):
    """On what the shapes of a Result depend."""

    token_rules: int
    sequence_rules: int
    runs: int  # dimensions of runs
    buckets: int  # dimensions of sequences
    token_cells: int
    sequence_cells: int


def sums_of(size: Size, numbers: Doubles) -> Sums:
    """The first numbers of a Result: what is added up over a chunk."""
    found: Sums = _Parts(numbers, None).named(Sums, _shapes(size)[Sums])
    return found


def result_of(size: Size, flats: Flats) -> Result:
    """The names over two flat arrays of `flat_lengths`."""
    parts = _Parts(*flats)
    return Result(*(parts.named(kind, shapes) for kind, shapes in _shapes(size).items()))


def slots(size: Size, first: int = 1) -> Result:
    """Where each number lies: counted from `first`, the numbers first and then the counts."""
    numbers, counts = flat_lengths(size)
    every: Any = np.arange(first, first + numbers + counts)
    return result_of(size, Flats(every[:numbers], every[numbers:]))


def needs(size: Size) -> Integers:
    """[counts]: in bits, which signs of A and lengths a part must have seen for a count not to be zero."""
    numbers, counts = flat_lengths(size)
    found: Any = np.zeros(counts, np.int64)
    names: Any = result_of(size, Flats(np.zeros(numbers), found))
    signs, lengths = 1 << np.arange(OF_LENGTHS), 1 << (OF_LENGTHS + np.arange(LENGTHS))
    for by_sign in (
        names.counts.histograms.reshape(3, 3, BINS), names.of_sequences.histograms, names.of_sequences.sequences,
        names.of_sequences.tokens, names.totals.cells,
    ):  # fmt: skip
        by_sign[...] = signs[: by_sign.shape[-2], None]
    for by_length in (names.counts.cells, names.of_sequences.by_length, names.totals.by_length):
        by_length[...] = signs[: by_length.shape[-3], None, None] | lengths[:, None]
    needed: Integers = found
    return needed


def flat_lengths(size: Size) -> tuple[int, int]:
    """How many numbers and how many counts there are."""
    found = [0, 0]
    for kind, shapes in _shapes(size).items():
        for name, shape in shapes.items():
            found[_counted(kind, name)] += math.prod(shape)
    return found[0], found[1]


def sums_length(size: Size) -> int:
    """How many numbers `sums_of` takes."""
    return sum(map(math.prod, _shapes(size)[Sums].values()))


def _counted(kind: Any, name: str) -> bool:
    return kind.__annotations__[name] is Singles


class _Parts:
    """Takes parts of two flat arrays, one after the other."""

    def __init__(self, numbers: Any, counts: Any) -> None:
        self._flats, self._ends = (numbers, counts), [0, 0]

    def named(self, kind: Any, shapes: Shapes) -> Any:
        """A tuple of arrays of these shapes."""
        return kind(**{name: self._next(_counted(kind, name), shape) for name, shape in shapes.items()})

    def _next(self, which: int, shape: tuple[int, ...]) -> Any:
        begin = self._ends[which]
        self._ends[which] = end = begin + math.prod(shape)
        return self._flats[which][begin:end].reshape(shape)


def _shapes(size: Size) -> Mapping[Any, Shapes]:
    """In the order in which the arrays lie."""
    rules, of_sequences, own, whole = size.token_rules, size.sequence_rules, size.token_cells, size.sequence_cells
    fine, bins, coarse = (kind.number for kind in (cells.TOKEN_BINS, cells.SEQUENCE_BINS, cells.LENGTH_BINS))
    return {
        Sums: {
            "tokens": (3, TOKEN_SUMS), "products": (9,), "advantages": (2,), "rules": (rules, RULE_SUMS),
            "weights": (rules, WEIGHT_SUMS), "differing": (rules,), "runs": (size.runs, CELL, BUCKETS),
            "mu": (CELL, MU_BUCKETS), "signs": (CELL, 4), "masses": (own, 3, fine), "regression": (7,),
            "neighbours": (6,),
        },
        Counts: {
            "histograms": (3, 3 * BINS), "masses": (3, 4, MASS_KEYS), "cells": (own, 3, LENGTHS, fine), "grids": (3, 8),
            "densities": (len(DENSE), 4, DENSITY),
        },
        SequenceSums: {
            "gaps": (3, GAP_SUMS), "cancelled": (3, 5), "histograms": (3, 2, 3, BINS),
            "rules": (of_sequences, SEQUENCE_RULE_SUMS), "weights": (of_sequences, WEIGHT_SUMS),
            "differing": (of_sequences,), "token_rules": (rules, 2), "lengths": (3, 2, QUARTERS),
            "masked": (of_sequences, QUARTERS), "masked_tokens": (rules, QUARTERS),
            "buckets": (size.buckets, CELL, BUCKETS), "ends": (2, 4), "sequences": (whole, 4, bins),
            "tokens": (whole, 3, bins), "masses": (whole, 3, bins), "by_length": (whole, 4, LENGTHS, coarse),
        },
        Totals: {
            "size": (3,), "gaps": (3, SEQUENCE_SUMS), "product": (1,), "probabilities": (3, PROBABILITIES),
            "dropped": (rules,), "dropped_of_sequences": (of_sequences,), "cells": (own, 3, fine),
            "by_length": (own, 3, LENGTHS, coarse),
        },
    }  # fmt: skip
