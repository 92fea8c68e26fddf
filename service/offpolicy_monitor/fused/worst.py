"""The sequences of a batch that stand first in some ranking of summary.tables.worst, from figures that are there.

Only of the few that are left are tokens looked at. It knows no block and no chunk. Shapes: S sequences of the batch,
N of them with a valid token of a gap.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from offpolicy_monitor.batch import Origin, RaggedBatch
from offpolicy_monitor.fused import arrays
from offpolicy_monitor.fused.arrays import DENOMINATOR, GAPS, NUMERATOR
from offpolicy_monitor.fused.batch import Measured
from offpolicy_monitor.summary.tables.worst import (
    LARGEST,
    LOGPROBS,
    MOST,
    Columns,
    GapFigures,
    Position,
    Worst,
    WorstSequence,
    abs_log_ratio_max,
)

Array = NDArray[Any]

#: Raw tokens kept of a sequence; of a longer one, those around its worst token.
MOST_TOKENS: Final = 4096


@dataclass(frozen=True, eq=False)
class Ranked:
    """A gap's figures of sequences.

    sequences  [N] int64, ascending: which of the batch's
    tokens     [N] int64: valid tokens of each
    figures    [3, N] float32: max |d|, mean d, sum of k3, as they are stored and merged
    """

    gap: int
    sequences: Array
    tokens: Array
    figures: Array

    @classmethod
    def of(cls, part: Measured, gap: int) -> "Ranked":
        """Of a part that has this gap."""
        lengths = np.diff(part.tokens.offsets)
        sequences = np.flatnonzero(lengths)
        x, tokens = part.left.gaps[sequences, gap], lengths[sequences]
        furthest = np.maximum(-x[:, arrays.LEAST], x[:, arrays.MOST])
        figures = np.stack([furthest, x[:, arrays.SUM] / tokens, x[:, arrays.K3_SUM]])
        return cls(gap, sequences, tokens, figures.clip(-LARGEST, LARGEST).astype(np.float32))

    def find(self, sequence: int) -> int | None:
        """Which of the N is a sequence of the batch."""
        found = int(np.searchsorted(self.sequences, sequence))
        return found if found < len(self.sequences) and self.sequences[found] == sequence else None

    def first(self, number: int) -> set[int]:
        """The first `number` of each ranking."""
        return {int(self.sequences[n]) for row in np.abs(self.figures) for n in largest(row, number)}

    def answer(self, sequence: int, positions: Sequence[Position]) -> GapFigures | None:
        """The sequence's figures; None where it has no valid token."""
        n = self.find(sequence)
        if n is None:
            return None
        _, mean, k3 = self.figures[:, n].tolist()
        return GapFigures(int(self.tokens[n]), abs_log_ratio_max(positions, GAPS[self.gap]), mean, k3)


def worst(source: RaggedBatch, parts: Iterable[Measured], origin: Origin, keep: int) -> Worst:
    """The worst sequences of a batch; the first `keep` of each ranking keep their raw tokens."""
    gaps = {gap: Ranked.of(part, GAPS.index(gap)) for part in parts if not part.alone for gap in part.gaps}
    chosen = sorted(set().union(*(gap.first(MOST) for gap in gaps.values())))
    kept = set().union(*(gap.first(keep) for gap in gaps.values()))
    reader = _Reader(source)
    tokens = {s: sorted({t for gap in gaps.values() if (t := reader.furthest(gap, s)) is not None}) for s in chosen}
    positions = {s: reader.read(s, tokens[s]) for s in chosen}
    raw = {s: Columns(keep, reader.read(s, reader.window(s, tokens[s][0]))) for s in chosen if s in kept}
    return Worst.of(
        WorstSequence(
            origin.shard or 0,
            s,
            reader.length(s),
            {name: found for name, gap in gaps.items() if (found := gap.answer(s, positions[s])) is not None},
            positions[s],
            None if source.sequence_ids is None else source.sequence_ids[s],
            raw.get(s),
        )
        for s in chosen
    )


def largest(values: Array, number: int) -> Array:
    """Places of the `number` largest positive values, of equal ones the first: [N] -> [n] int64, the largest first."""
    if not number:
        return np.zeros(0, np.int64)
    lowest = np.partition(values, -number)[-number] if len(values) > number else 0.0
    places = np.flatnonzero((values >= lowest) & (values > 0))
    return places[np.argsort(-values[places], kind="stable")[:number]]


@dataclass(frozen=True, eq=False)
class _Reader:
    """Reads the log-probs of a few tokens of the batch as it was sent; tokens are counted over the batch."""

    source: RaggedBatch

    def length(self, sequence: int) -> int:
        """Tokens under the mask."""
        first, end = self._ends(sequence)
        return end - first

    def furthest(self, gap: Ranked, sequence: int) -> int | None:
        """The first token with the largest |d| of a gap; None where none differs."""
        n = gap.find(sequence)
        if n is None or not gap.figures[0, n]:
            return None
        first, end = self._ends(sequence)
        a, b = (self.source.columns[LOGPROBS[column[gap.gap]]][first:end] for column in (NUMERATOR, DENOMINATOR))
        with np.errstate(invalid="ignore"):
            d = np.abs(a - b)
        return first + int(np.where(np.isfinite(d), d, -1.0).argmax())

    def read(self, sequence: int, tokens: Sequence[int]) -> tuple[Position, ...]:
        """Log-probs at some tokens of a sequence, at their positions as sent."""
        chosen = np.asarray(tokens, np.int64)
        places = chosen if self.source.positions is None else self.source.positions[chosen]
        columns = (_optional(self.source.columns.get(name), chosen) for name in LOGPROBS)
        begin = int(self._begins[sequence])
        return tuple(map(Position, (places - begin).tolist(), zip(*columns, strict=True)))

    def window(self, sequence: int, token: int) -> range:
        """The tokens that are kept of a sequence, around one of them."""
        first, end = self._ends(sequence)
        begin = max(min(token - MOST_TOKENS // 2, end - MOST_TOKENS), first)
        return range(begin, min(begin + MOST_TOKENS, end))

    def _ends(self, sequence: int) -> tuple[int, int]:
        return int(self.source.offsets[sequence]), int(self.source.offsets[sequence + 1])

    @cached_property
    def _begins(self) -> Array:
        """[S] int64: where the positions of each sequence begin."""
        if self.source.positions is None:
            return self.source.offsets[:-1]
        begins: Array = np.cumsum(self.source.lengths) - self.source.lengths
        return begins


def _optional(column: Array | None, tokens: Array) -> list[float | None]:
    """The values at the tokens, None for what is not finite or was not sent."""
    if column is None:
        return [None] * len(tokens)
    values = column[tokens]
    finite = np.isfinite(values).tolist()
    return [value if fine else None for value, fine in zip(values.tolist(), finite, strict=True)]
