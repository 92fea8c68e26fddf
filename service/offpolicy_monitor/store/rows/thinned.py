"""Down-sampling of columns over one x that keeps the lowest and the highest value of each stretch, so that a spike is
never lost. Pure.

F columns, n entries, S stretches of equal length but for one entry. What is lowest in a stretch is lowest in a part of
it: of several columns the entries of many short stretches are found once, and any longer ones are made of these.
"""

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

Column = NDArray[np.float64]
Indices = NDArray[np.int64]

#: Short stretches of several columns, times the entries that are wanted.
FINER: Final = 2
#: The share of the entries that are wanted from which on no more stretches are tried.
FULL: Final = 0.95


def thinned(columns: Sequence[Column] | Column, most: int) -> Indices:
    """Indices of at most `most` entries, ascending; columns: F, one at least, [n] float64, NaN where a value is absent.

    Of one column these are the extremes of `most / 2` stretches. Of several they are those of each column, of as many
    stretches as there is room for, and the first and the last entry.
    """
    fields, count = len(columns), len(columns[0])
    if count <= most:
        return np.arange(count)
    if fields == 1:
        each = np.arange(count)[None]
        return np.unique(_of_stretches(columns, each, each, max(1, most // 2)))[:most]
    short = [_of_width(column, max(1, count // (FINER * most))) for column in columns]
    lowest, highest = (np.stack(each) for each in zip(*short, strict=True))
    ends = np.array([0, count - 1])

    def kept(stretches: int) -> Indices:
        return np.union1d(_of_stretches(columns, lowest, highest, stretches), ends)

    # Columns mostly have their extremes at the same entries, so that many more stretches fit than surely would.
    fits, too_many = max(1, (most - 2) // (2 * fields)), max(1, most // 2)
    found = kept(too_many)
    if len(found) <= most:
        return found
    found = kept(fits)
    # Entries come fast with the first stretches and ever slower: the middle of the two by their ratio.
    while len(found) < FULL * most and too_many - fits > 1:
        stretches = min(max(round(math.sqrt(fits * too_many)), fits + 1), too_many - 1)
        more = kept(stretches)
        if len(more) <= most:
            fits, found = stretches, more
        else:
            too_many = stretches
    return found[:most]


def _of_width(column: Column, width: int) -> tuple[Indices, Indices]:
    """Where a column is lowest and highest in each stretch of so many entries; the last one may have fewer."""
    whole = len(column) // width * width
    parts = [part for part in (column[:whole].reshape(-1, width), column[None, whole:]) if part.size]
    found = [np.stack(_extremes(part)) for part in parts]
    return tuple(np.concatenate(found, axis=1) + np.arange(0, len(column), width))


def _of_stretches(columns: Sequence[Column] | Column, lowest: Indices, highest: Indices, stretches: int) -> Indices:
    """Where each column is lowest and highest in each stretch, of entries [F, n] that are candidates for either."""
    count = lowest.shape[1]
    bounds = np.arange(stretches + 1) * count // stretches
    starts, ends = bounds[:-1, None], bounds[1:, None]
    # [S, W]: a stretch that is shorter names its last entry twice.
    at = np.minimum(starts + np.arange((ends - starts).max()), ends - 1)
    low, _ = _extremes(_taken(columns, lowest)[:, at])
    _, high = _extremes(_taken(columns, highest)[:, at])
    every, field = np.arange(stretches), np.arange(len(columns))[:, None]
    return np.concatenate([lowest[field, at[every, low]], highest[field, at[every, high]]], axis=None)


def _taken(columns: Sequence[Column] | Column, at: Indices) -> NDArray[np.float64]:
    """[F, m]: of each column its entries at its own indices [F, m]."""
    return np.stack([column[chosen] for column, chosen in zip(columns, at, strict=True)])


def _extremes(values: NDArray[np.float64]) -> tuple[Indices, Indices]:
    """Where values are lowest, the first of equal ones, and highest, the last of them, along the last axis; 0 for both
    where there are none."""
    least, largest = values, values
    if np.isnan(values.min()):
        absent = np.isnan(values)
        least, largest = np.where(absent, np.inf, values), np.where(absent, -np.inf, values)
    # Of equal values the last one, as the first one of the reversed stretch.
    highest = values.shape[-1] - 1 - largest[..., ::-1].argmax(axis=-1)
    if largest is not values:
        highest[absent.all(axis=-1)] = 0
    return least.argmin(axis=-1), highest
