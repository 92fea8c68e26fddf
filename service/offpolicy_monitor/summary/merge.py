"""Merging of Arrays: a monoid, whose identity is `Arrays()`; associative and commutative up to the rounding of sums.

Counts are added, sums too, extremes are the smaller and the larger ones, and a sum of squared distances from a mean
gains what the means are apart.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

import numpy as np

from offpolicy_monitor.summary.arrays import Arrays, Sparse
from offpolicy_monitor.summary.scheme import COUNTS, SUMS, Run, Runs, Scheme, runs, union

#: Of counts, the share that is not zero from which on all of them are added: one alone takes longer than one of many.
FEW: Final = 1 / 16
#: Of sums, minima and maxima.
_MERGE: Final = (np.add, np.minimum, np.maximum)


def merged(parts: Sequence[Arrays]) -> Arrays:
    """The arrays of all taken together, added from left to right; one alone is itself."""
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return Arrays()
    scheme, (first, *others) = union(tuple(part.scheme for part in parts)), parts
    whole, others = (first.copy(), others) if scheme is first.scheme else (Arrays(scheme), [*parts])
    moved = [runs(part.scheme, scheme) for part in others]
    _add_fractions(whole, others, moved)
    _add_counts(whole, others, moved)
    _add_sparse(whole, others)
    return whole.lacking(frozenset().union(*(part.absent for part in parts)))


def among(arrays: Arrays, scheme: Scheme, moved: Runs) -> Arrays:
    """The same where other rows may be too, nothing of these; `moved` says where these entries stand there."""
    if scheme.sizes == arrays.scheme.sizes:
        return arrays.named_by(scheme)
    found = Arrays(scheme, None, arrays.sparse, arrays.absent)
    _add_fractions(found, [arrays], [moved])
    _add_counts(found, [arrays], [moved])
    return found


def _add_fractions(whole: Arrays, parts: Sequence[Arrays], moved: Sequence[Runs]) -> None:
    """Add the sums of parts, in their order, and see to extremes. What the parts count is still to be added."""
    counted = {name: whole.count_at(at.tokens) for name, at in whole.scheme.deviations.items()}
    for part, found in zip(parts, moved, strict=True):
        apart = _between_means(whole, part, counted)
        for merge, mine, theirs, found_there in zip(_MERGE, whole.fractions, part.fractions, found[SUMS:], strict=True):
            for start, stop, into in found_there:
                here = mine[into : into + stop - start]
                merge(here, theirs[start:stop], out=here)
        for index, between in apart:
            whole.fractions[0][index] += between


def _add_counts(whole: Arrays, parts: Sequence[Arrays], moved: Sequence[Runs]) -> None:
    """Add what parts count: those of which few counts are not zero at once."""
    few: list[Sparse] = []
    for part, (found, *_) in zip(parts, moved, strict=True):
        if len(part.filled[0]) < FEW * part.scheme.sizes[COUNTS]:
            few += _moved(part.filled, found)
            continue
        theirs = part.seen(COUNTS)
        for start, stop, into in found:
            whole.counts[into : into + stop - start] += theirs[start:stop]
    if few:
        np.add.at(whole.counts, *map(np.concatenate, zip(*few, strict=True)))


def _moved(filled: Sparse, found: Sequence[Run]) -> Iterator[Sparse]:
    """Counts that are not zero, run by run, by the entries where they stand then."""
    where, counts = filled
    cuts = where.searchsorted([run.start for run in found]).tolist()
    for run, (begin, end) in zip(found, pairwise([*cuts, len(where)]), strict=True):
        yield where[begin:end] + (run.into - run.start), counts[begin:end]


def _add_sparse(whole: Arrays, parts: Sequence[Arrays]) -> None:
    for name in dict.fromkeys(name for part in parts for name in part.sparse):
        whole.sparse[name] = _together([whole.at(name), *(part.at(name) for part in parts)])


def _between_means(whole: Arrays, part: Arrays, counted: dict[str, int]) -> list[tuple[int, float]]:
    """By its index, what each deviation gains because two means differ: Chan, Golub and LeVeque (1979).

    `counted` are the tokens of each by name, to which those of the part are added.
    """
    found = []
    for name, theirs in part.scheme.deviations.items():
        mine = whole.scheme.deviations[name]
        n, m = counted[name], part.count_at(theirs.tokens)
        counted[name] = n + m
        if n and m:
            apart = whole.fractions[0].item(mine.total) / n - part.fractions[0].item(theirs.total) / m
            found.append((mine.entry, apart * apart * (n * m / (n + m))))
    return found


def _together(parts: Sequence[Sparse]) -> Sparse:
    """All added up."""
    numbers, counts = map(np.concatenate, zip(*parts, strict=True))
    entries, indices = np.unique(numbers, return_inverse=True)
    found = np.zeros(len(entries), np.int64)
    np.add.at(found, indices, counts)
    return entries, found
