"""Tables read together: the numbers of several tables by a look into each section of the buffer, as many as one takes.

A look costs a hundred times what another number adds to it. Knows no table by name.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from offpolicy_monitor.summary.scheme import REMEMBERED, SECTIONS, Scheme

#: Choices of tables that are read together of each scheme.
CHOICES: Final = 8


class OfPath(NamedTuple):
    """The rows of the tables at a path, and where they are among the numbers that were read.

    singles  names of those that are one number each, with its index
    lists    names of the others, with the indices at which they begin and end
    """

    path: str
    singles: list[tuple[str, int]]
    lists: list[tuple[str, int, int]]


class Together(NamedTuple):
    """The entries that are read, section by section, and whose they are."""

    entries: Sequence[NDArray[np.int64]]
    tables: Sequence[OfPath]


@lru_cache(CHOICES * REMEMBERED)
def together(scheme: Scheme, paths: tuple[str, ...]) -> Together:
    """Where the tables at some paths stand; a path at which there is none has no rows."""
    entries: list[list[int]] = [[] for _ in SECTIONS]
    rows = []
    for path in paths:
        keys = [table.key for table in scheme.paths.get(path, ())]
        for row, span in ((row, span) for key in keys for row, _, span in scheme.rows(key) if span is not None):
            rows.append((path, row, span, len(entries[span.section])))
            entries[span.section] += range(span.start, span.stop)
    begins = (0, *accumulate(map(len, entries)))
    tables = {path: OfPath(path, [], []) for path in paths}
    for path, row, span, at in rows:
        begin = begins[span.section] + at
        if span.shape:
            tables[path].lists.append((row, begin, begin + span.stop - span.start))
        else:
            tables[path].singles.append((row, begin))
    return Together([np.array(found, np.int64) for found in entries], list(tables.values()))
