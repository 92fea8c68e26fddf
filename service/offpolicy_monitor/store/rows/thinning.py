"""Down-sampling of columns over one x that keeps the lowest and the highest value of each stretch, so that a spike is
never lost. Pure.

F columns, n entries, S stretches of equal length but for one entry.
"""

import numpy as np
from numpy.typing import NDArray

Columns = NDArray[np.float64]
Indices = NDArray[np.int64]


def thinned(columns: Columns, most: int) -> Indices:
    """Indices of at most `most` entries, ascending; columns: [F, n] float64, NaN where a value is absent.

    Of one column these are the extremes of `most / 2` stretches. Of several they are those of each column, of as many
    stretches as there is room for, and the first and the last entry.
    """
    fields, count = columns.shape
    if count <= most:
        return np.arange(count)
    if fields == 1:
        return _extremes(columns, max(1, most // 2))[:most]
    ends = np.array([0, count - 1])
    least, stretches = max(1, (most - 2) // max(2 * fields, 1)), max(1, most // 2)
    # Columns mostly have their extremes at the same entries, so that many more stretches fit than surely would.
    while len(kept := np.union1d(_extremes(columns, stretches), ends)) > most and stretches > least:
        stretches = max(least, min(stretches - 1, stretches * most // len(kept)))
    return kept[:most]


def _extremes(columns: Columns, stretches: int) -> Indices:
    """Where each column is lowest and highest in each stretch; the first entry where it has no value there."""
    bounds = np.arange(stretches + 1) * columns.shape[1] // stretches
    starts, ends = bounds[:-1, None], bounds[1:, None]
    # [S, W]: a stretch that is shorter names its last entry twice.
    at = np.minimum(starts + np.arange((ends - starts).max()), ends - 1)
    values = columns[:, at]
    absent = np.isnan(values)
    gaps = absent.any()
    lowest = (np.where(absent, np.inf, values) if gaps else values).argmin(axis=2)
    # Of equal values the last one, as the first one of the reversed stretch.
    highest = (np.where(absent, -np.inf, values) if gaps else values)[:, :, ::-1].argmax(axis=2)
    highest = at.shape[1] - 1 - highest
    if gaps:
        highest = np.where(absent.all(axis=2), lowest, highest)
    found = np.stack([lowest, highest])
    return np.unique(at[np.arange(stretches), found])
