"""The worst sequences of several shards, merged column by column: those that Worst.sequences has, none of them made."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from offpolicy_monitor.summary.arrays import Array
from offpolicy_monitor.summary.stored.worst_columns import NO_POSITIONS, Numbers, Positions, WorstColumns, in_columns
from offpolicy_monitor.summary.tables.ranking import first_of_each, marked
from offpolicy_monitor.summary.tables.worst import BESIDE, GAPS, LARGEST, MOST, Worst

_SHARD, _INDEX = 0, 1
_SEQUENCE, _RANKS = 0, 1
#: Columns of a gap that are ranked by.
_LOG_GEOMETRIC_RATIO, _K3_SUM = 1, 2
_ABOVE, _BELOW = (list(sides) for sides in zip(*GAPS.values(), strict=True))
_NO_NUMBERS: Final = Numbers(np.zeros(0, np.int64), np.zeros(0))


def columns_of(worst: Worst) -> tuple[list[Array], Sequence[str | None]]:
    """The columns as they are stored, and the ids where there are any; nothing where there are no sequences."""
    if not worst.sources:
        return [], []
    found = merged(list(map(in_columns, worst.sources)))
    if found is None:
        found = in_columns(lambda: worst.sequences)
    if not len(found.sequences):
        return [], []
    return found.columns, found.ids if found.ids is not None and any(id_ is not None for id_ in found.ids) else []


def merged(parts: Sequence[WorstColumns]) -> WorstColumns | None:
    """The worst of all parts, by shard and index; one part is itself.

    None where two sequences have the same shard and index, as those of merged steps: their figures decide then.
    """
    if len(parts) == 1:
        return parts[0]
    whole = _together(parts)
    shards, indices = whole.sequences[:, _SHARD], whole.sequences[:, _INDEX]
    order = np.lexsort((indices, shards))
    if ((np.diff(shards[order]) == 0) & (np.diff(indices[order]) == 0)).any():
        return None
    ranked, there = first_of_each(_values(whole)[:, order], MOST)
    best = np.full(len(order), MOST)
    for rank in reversed(range(ranked.shape[1])):
        best[ranked[there[:, rank], rank]] = rank
    chosen = order[marked(ranked[there], len(order))]
    # Of each row that is kept, the index of its sequence in that order.
    index = np.argsort(order)[whole.kept[:, _SEQUENCE]]
    kept = np.flatnonzero(best[index] < whole.kept[:, _RANKS])
    return whole.of(chosen, kept[np.argsort(index[kept])])


def _values(whole: WorstColumns) -> Array:
    """[gaps * 3, N] what the rankings compare: max |d|, |log geometric ratio|, and the sum of k3, 0 without a gap."""
    numbers, logprobs = whole.positions.numbers, whole.positions.logprobs.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        distances = np.nan_to_num(np.abs(logprobs[:, _ABOVE] - logprobs[:, _BELOW]), nan=0.0, posinf=LARGEST)
    most = np.zeros((len(numbers), len(GAPS)))
    filled = numbers > 0
    if filled.any():
        begins = (np.cumsum(numbers) - numbers)[filled]
        most[filled] = np.maximum.reduceat(distances, begins, axis=0)
    figures = np.abs(whole.gaps[..., [_LOG_GEOMETRIC_RATIO, _K3_SUM]])
    singles = np.minimum(most, LARGEST).astype(np.float32)
    values = np.concatenate([singles[..., None].astype(np.float64), figures], 2)
    values[np.isnan(whole.gaps[..., 0])] = 0.0
    return values.reshape(len(numbers), -1).T


def _together(parts: Sequence[WorstColumns]) -> WorstColumns:
    """All sequences of the parts."""
    sequences, kept = (_column([getattr(part, name) for part in parts], np.int64) for name in ("sequences", "kept"))
    before = np.cumsum([0, *(len(part.sequences) for part in parts[:-1])])
    kept[:, _SEQUENCE] += np.repeat(before, [len(part.kept) for part in parts])
    ids = None
    if any(part.ids is not None for part in parts):
        ids = [id_ for part in parts for id_ in (part.ids or [None] * len(part.sequences))]
    return WorstColumns(
        sequences,
        _column([part.gaps for part in parts], np.float64),
        _positions([part.positions for part in parts]),
        kept,
        _positions([part.tokens for part in parts]),
        ids,
        _beside(parts),
    )


def _positions(parts: Sequence[Positions]) -> Positions:
    if not any(len(part.numbers) for part in parts):
        return NO_POSITIONS
    numbers, positions, logprobs = zip(*parts, strict=True)
    return Positions(_column(numbers, np.int64), _column(positions, np.int64), np.concatenate(logprobs))


def _column(parts: Sequence[Array], dtype: type[np.generic]) -> Array:
    """The parts of a column, which are stored in as few bytes as hold each of them, one after the other."""
    return np.concatenate(parts, dtype=dtype, casting="unsafe")


def _beside(parts: Sequence[WorstColumns]) -> list[Numbers]:
    """Of each of BESIDE; nothing where no part has any."""
    if not any(part.beside for part in parts):
        return []
    found = []
    for k in range(len(BESIDE)):
        own = [part.beside[k] if part.beside else _NO_NUMBERS for part in parts]
        counts = [
            numbers.counts if part.beside else np.zeros(len(part.kept), np.int64)
            for part, numbers in zip(parts, own, strict=True)
        ]
        values = [numbers.values for numbers in own if len(numbers.values)]
        found.append(Numbers(_column(counts, np.int64), np.concatenate(values) if values else np.zeros(0, np.int64)))
    return found
