"""Tables read together: the numbers of several tables by two looks into the buffer, as many as one table takes.

A look costs a hundred times what another number adds to it. Knows no table by name.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from offpolicy_monitor.summary.scheme import COUNTS, REMEMBERED, SUMS, Scheme

#: Choices of tables that are read together of each scheme.
CHOICES: Final = 8


class Several(NamedTuple):
    """A row that is several numbers, and where these begin and end among those that were read."""

    row: str
    begin: int
    end: int


class OfPath(NamedTuple):
    """The rows of the tables at a path.

    singles  names of those that are one number each: counts, which were read together, then fractions, which were too
    counts   where the former begin and end
    others   the same of the latter
    lists    the other rows
    """

    path: str
    singles: Sequence[str]
    counts: slice
    others: slice
    lists: Sequence[Several]


class Together(NamedTuple):
    """The numbers that are read: all counts, then all fractions."""

    counts: NDArray[np.int64]
    fractions: NDArray[np.int64]
    tables: Sequence[OfPath]


@lru_cache(CHOICES * REMEMBERED)
def together(scheme: Scheme, begins: tuple[int, ...], paths: tuple[str, ...]) -> Together:
    """Where they stand in buffers of this base whose sections begin there; fractions from where counts end.

    A path at which the base has no table has no rows.
    """
    rows = {
        path: [(row, span) for table in scheme.paths.get(path, ()) for row, _, span in scheme.rows(table.key) if span]
        for path in paths
    }
    entries: list[int] = []
    tables: dict[str, tuple[list[str], list[slice], list[Several]]] = {path: ([], [], []) for path in rows}
    counts = 0
    for are_counts in (True, False):
        for path, (singles, slices, lists) in tables.items():
            here = [(row, span) for row, span in rows[path] if (span.section == COUNTS) is are_counts]
            begin = len(entries)
            for row, span in sorted(here, key=lambda found: bool(found[1].shape)):
                first = begins[span.section] - (0 if are_counts else begins[SUMS])
                if span.shape:
                    lists.append(Several(row, len(entries), len(entries) + span.stop - span.start))
                else:
                    singles.append(row)
                entries += range(first + span.start, first + span.stop)
            single = sum(not span.shape for _, span in here)
            slices.append(slice(begin, begin + single))
        counts = len(entries) if are_counts else counts
    found = np.array(entries, np.int64)
    of_paths = [OfPath(path, names, counted, other, lists) for path, (names, (counted, other), lists) in tables.items()]
    return Together(found[:counts], found[counts:], of_paths)
