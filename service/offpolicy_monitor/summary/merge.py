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
    scheme = union(tuple(part.scheme for part in parts))
    first, others = (parts[0], parts[1:]) if scheme is parts[0].scheme else (Arrays.of_nothing(scheme), parts)
    whole = first.with_own_fractions()
    moved = [runs(part.scheme, scheme) for part in others]
    _add_fractions(whole, others, moved)
    whole = _with_counts(whole, others, moved)
    _add_sparse(whole, others)
    return whole.lacking(frozenset().union(*(part.absent for part in parts)))


def among(arrays: Arrays, scheme: Scheme, moved: Runs) -> Arrays:
    """The same where other rows may be too, nothing of these; `moved` says where these entries stand there."""
    if scheme.sizes == arrays.scheme.sizes:
        return arrays.named_by(scheme)
    found = Arrays.of_nothing(scheme)
    _add_fractions(found, [arrays], [moved])
    found = _with_counts(found, [arrays], [moved])
    found.sparse, found.absent = dict(arrays.sparse), arrays.absent
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


def _with_counts(whole: Arrays, parts: Sequence[Arrays], moved: Sequence[Runs]) -> Arrays:
    """With what parts count as well: written out where that is many counts, else only those that are not zero."""
    few, many = list[Sparse](), list[tuple[Arrays, Sequence[Run]]]()
    for part, (found, *_) in zip(parts, moved, strict=True):
        if len(part.filled[0]) < FEW * part.scheme.sizes[COUNTS]:
            few += _moved(part.filled, found)
        else:
            many.append((part, found))
    if not many and not whole.is_written_out:
        all_few = [whole.filled, *few]
        if sum(len(where) for where, _ in all_few) < FEW * whole.scheme.sizes[COUNTS]:
            return whole.with_counts(None, _together(all_few))
    counts = whole.counts_to_change()
    for part, found in many:
        theirs = part.seen(COUNTS)
        for start, stop, into in found:
            counts[into : into + stop - start] += theirs[start:stop]
    if few:
        np.add.at(counts, *map(np.concatenate, zip(*few, strict=True)))
    return whole.with_counts(counts, None)


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
