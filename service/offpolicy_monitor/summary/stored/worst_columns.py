"""The worst sequences of a summary as columns of numbers, and their ids beside them: as version 3 stores them.

NaN stands for what is None. Max |d| is not stored: it is the largest at the positions that are.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Final, NamedTuple

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


class Positions(NamedTuple):
    """Positions with log-probs, group by group; NaN for a log-prob that is None."""

    numbers: Array  # how many each group has
    positions: Array  # [P]
    logprobs: Array  # [P, 3]

    @property
    def columns(self) -> tuple[Array, Array, Array]:
        """As they are stored."""
        return columns.whole(self.numbers), columns.whole(self.positions), columns.fractions(self.logprobs.ravel())


@dataclass(frozen=True, eq=False)
class WorstColumns:
    """Sequences in columns, who are made when they are called for: storing them needs none."""

    sequences: Array  # [C, 3] of _SEQUENCE
    gaps: Array  # [C, 3, 3] by gap of _GAP, NaN where a gap has none
    positions: Positions  # of each sequence
    kept: Array  # [K, 2] of _KEPT
    tokens: Positions  # of each of these
    ids: Sequence[str | None] | None = None

    @property
    def worst(self) -> Worst:
        """What they are the sequences of."""
        return Worst.later(self)

    @cached_property
    def columns(self) -> list[Array]:
        """As they are stored."""
        whole, gaps, kept = columns.whole(self.sequences.ravel()), columns.fractions(self.gaps.ravel()), self.kept
        return [whole, gaps, *self.positions.columns, columns.whole(kept.ravel()), *self.tokens.columns]

    def __call__(self) -> tuple[WorstSequence, ...]:
        return sequences_of(self.columns, self.ids or [])


def columns_of(worst: Worst) -> tuple[list[Array], Sequence[str | None]]:
    """The columns, and the ids where there are any; nothing where there are no sequences."""
    if len(worst.sources) == 1 and isinstance(worst.sources[0], WorstColumns):
        found = worst.sources[0]
    elif worst.sequences:
        found = _in_columns(worst.sequences)
    else:
        return [], []
    return found.columns, found.ids if found.ids is not None and any(id_ is not None for id_ in found.ids) else []


def _in_columns(sequences: Sequence[WorstSequence]) -> WorstColumns:
    kept = [(number, s.columns) for number, s in enumerate(sequences) if s.columns is not None]
    of_gaps = np.array([s.gaps.get(gap, _NO_GAP) for s in sequences for gap in GAPS], np.float64)
    return WorstColumns(
        np.array([[getattr(s, name) for name in _SEQUENCE] for s in sequences], np.int64),
        of_gaps[:, [GapFigures._fields.index(name) for name in _GAP]],
        _positions([s.positions for s in sequences]),
        np.array([[number, of_sequence.ranks] for number, of_sequence in kept], np.int64),
        _positions([of_sequence.tokens for _, of_sequence in kept]),
        [s.id for s in sequences],
    )


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


def _positions(groups: Sequence[Sequence[Position]]) -> Positions:
    flat = [position for group in groups for position in group]
    return Positions(
        np.array([len(group) for group in groups], np.int64),
        np.array([position.position for position in flat], np.int64),
        np.array([position.logprobs for position in flat], np.float64),  # None becomes NaN
    )


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
