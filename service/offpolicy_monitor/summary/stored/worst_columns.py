"""The worst sequences of a summary as columns of numbers, and their ids beside them: as version 3 stores them.

NaN stands for what is None. Max |d| is not stored: it is the largest at the positions that are.
"""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Final

import numpy as np

from offpolicy_monitor.summary.arrays import Array
from offpolicy_monitor.summary.stored import columns
from offpolicy_monitor.summary.tables.worst import (
    GAPS,
    Columns,
    GapFigures,
    Position,
    Worst,
    WorstSequence,
    abs_log_ratio_max,
)
from offpolicy_monitor.vocabulary import LOGPROBS

#: Columns: numbers of sequences; of their gaps; positions with log-probs; kept columns, and their tokens.
_SEQUENCE: Final = ("shard", "index", "tokens")
_GAP: Final = ("tokens", "log_geometric_ratio", "k3_sum")
_NO_GAP: Final = (np.nan,) * len(GapFigures._fields)
_KEPT: Final = ("sequence", "places")


def columns_of(worst: Worst) -> tuple[list[Array], list[str | None]]:
    """The columns, and the ids where there are any; nothing where there are no sequences."""
    sequences = worst.sequences
    if not sequences:
        return [], []
    kept = [(number, s.columns) for number, s in enumerate(sequences) if s.columns is not None]
    of_gaps = np.array([s.gaps.get(gap, _NO_GAP) for s in sequences for gap in GAPS], np.float64)
    return [
        _whole([[getattr(s, name) for name in _SEQUENCE] for s in sequences]),
        columns.fractions(of_gaps[:, [GapFigures._fields.index(name) for name in _GAP]].ravel()),
        *_positions([s.positions for s in sequences]),
        _whole([[number, of_sequence.ranks] for number, of_sequence in kept]),
        *_positions([of_sequence.tokens for _, of_sequence in kept]),
    ], [s.id for s in sequences] if any(s.id is not None for s in sequences) else []


def sequences_of(found: Sequence[Array], ids: Sequence[str | None]) -> tuple[WorstSequence, ...]:
    """Read what `columns_of` wrote; any error where it is something else."""
    if not found:
        return ()
    whole, of_gaps, *rest = found
    numbers, figures = whole.reshape(-1, len(_SEQUENCE)).tolist(), of_gaps.reshape(-1, len(GAPS), len(_GAP)).tolist()
    positions, tokens = _read(*rest[:3]), _read(*rest[4:])
    kept = {
        number: Columns(ranks, of_sequence)
        for (number, ranks), of_sequence in zip(rest[3].reshape(-1, len(_KEPT)).tolist(), tokens, strict=True)
    }
    return tuple(
        WorstSequence(shard, index, size, _figures(of_sequence, here), here, id_, kept.get(number))
        for number, ((shard, index, size), of_sequence, here, id_) in enumerate(
            zip(numbers, figures, positions, ids or [None] * len(numbers), strict=True)
        )
    )


def _figures(of_sequence: Sequence[Sequence[float]], positions: Sequence[Position]) -> dict[str, GapFigures]:
    return {
        gap: GapFigures(int(tokens), abs_log_ratio_max(positions, gap), mean, k3)
        for gap, (tokens, mean, k3) in zip(GAPS, of_sequence, strict=True)
        if tokens == tokens
    }


def _positions(groups: Sequence[Sequence[Position]]) -> list[Array]:
    """How many each group has; their positions; their log-probs."""
    flat = [position for group in groups for position in group]
    return [
        _whole([len(group) for group in groups]),
        _whole([position.position for position in flat]),
        # None becomes NaN.
        columns.fractions(np.array([position.logprobs for position in flat], np.float64).ravel()),
    ]


def _read(numbers: Array, positions: Array, logprobs: Array) -> list[tuple[Position, ...]]:
    rows = logprobs.reshape(-1, len(LOGPROBS)).tolist()
    flat = []
    for position, (sampling, old, new) in zip(positions.tolist(), rows, strict=True):
        flat.append(Position(position, (_known(sampling), _known(old), _known(new))))
    ends = list(accumulate(numbers.tolist(), initial=0))
    if ends[-1] != len(flat):
        raise ValueError(f"{len(flat)} positions of {ends[-1]}")
    return [tuple(flat[begin:end]) for begin, end in pairwise(ends)]


def _known(value: float) -> float | None:
    return value if value == value else None


def _whole(values: Sequence[Sequence[int]] | Sequence[int]) -> Array:
    return columns.whole(np.asarray(values, np.int64).ravel())
