"""Rankings of sequences as rows of numbers: the first of each, and which sequences those are."""

from typing import Final

import numpy as np

from offpolicy_monitor.summary.arrays import Array

#: Up to so many values are sorted as they are.
FEW: Final = 256


def first_of_each(values: Array, number: int) -> tuple[Array, Array]:
    """Of each row the columns of its largest values, of equal ones the first, by rank; and which of these are positive.

    values [rows, N] -> [rows, at most `number`] int64, and bool.
    """
    candidates = np.arange(values.shape[1])
    if len(candidates) > FEW:
        least = np.partition(values, -number, axis=1)[:, -number, None]
        candidates = np.flatnonzero(((values >= least) & (values > 0)).any(0))
        values = values[:, candidates]
    order = np.argsort(-values, axis=1, kind="stable")[:, :number]
    return candidates[order], values[np.arange(len(values))[:, None], order] > 0


def marked(columns: Array, number: int) -> Array:
    """The different ones of these columns of `number`, in ascending order."""
    marks = np.zeros(number, bool)
    marks[columns] = True
    return marks.nonzero()[0]
