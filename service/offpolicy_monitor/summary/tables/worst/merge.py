"""The worst of several shards: a monoid like everything kept, commutative and associative exactly.

Equal values are ordered by shard and index, and merging compares no sums. Of sequences that are the same in these and
in all figures, which only steps that are merged can have, the first stands.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from offpolicy_monitor.summary.tables.ranking import first_of_each, marked
from offpolicy_monitor.summary.tables.worst.columns import MOST, Sequences, together


@dataclass(frozen=True, eq=False)
class Worst:
    """The worst of several: read, and found among all, when somebody asks for them. Most merges are judged without.

    numbers  of those that are stored, the numbers that their columns have
    """

    sources: tuple[Callable[[], Sequences], ...] = ()
    numbers: int = 0

    @classmethod
    def of(cls, found: Sequences) -> "Worst":
        """These, of which each is in some ranking."""
        return cls((lambda: found,)) if len(found) else cls()

    @cached_property
    def sequences(self) -> Sequences:
        """The sequences, by shard and index, none of them in no ranking; of one source as they are there."""
        parts = [read() for read in self.sources]
        return parts[0] if len(parts) == 1 else worst_of(together(parts))

    def merge(self, other: "Worst") -> "Worst":
        """The worst of both."""
        return Worst((*self.sources, *other.sources), self.numbers + other.numbers)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Worst) and self.sequences == other.sequences

    __hash__ = None


def worst_of(found: Sequences) -> Sequences:
    """The worst among these, by shard and index; of those that are equal in all of their figures one.

    Where two have the same shard and index, as those of merged steps, their figures decide. Raw tokens are lost with
    the rank for which they were kept: ranks are only lost by merging.
    """
    shards, indices = found.whole[:, 0], found.whole[:, 1]
    order = np.lexsort((indices, shards))
    if ((np.diff(shards[order]) == 0) & (np.diff(indices[order]) == 0)).any():
        figures = np.nan_to_num(found.gaps.reshape(len(found), -1), nan=-1.0)
        order = np.unique(np.column_stack([found.whole, figures, found.furthest_of_gaps]), axis=0, return_index=True)[1]
    ranked, there = first_of_each(found.values[:, order], MOST)
    best = np.full(len(found), MOST)
    for rank in reversed(range(ranked.shape[1])):
        best[order[ranked[there[:, rank], rank]]] = rank
    return found.of(order[marked(ranked[there], len(order))], best[found.kept[:, 0]] < found.kept[:, 1])
