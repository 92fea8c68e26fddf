"""The worst sequences of a batch: those that stand first in some ranking of summary.tables.worst.

Rankings are cut by figures of sequences, which are there already; only of the few that are left are tokens looked at,
on the host, where the batch came from.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from typing import Final

import numpy as np
import torch
from torch import Tensor

from offpolicy_monitor.batch import Array
from offpolicy_monitor.measure.blocks import DeviceBatch
from offpolicy_monitor.measure.view import BlockView
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
from offpolicy_monitor.vocabulary import GAP_LOGPROBS

#: Raw tokens kept of a sequence; of a longer one, those around its worst token.
MOST_TOKENS: Final = 4096


def figures_of_sequences(view: BlockView) -> Tensor:
    """[figures, G, N] of a block: valid tokens, max |d|, mean d and the sum of k3 of each sequence."""
    gaps = view.gaps
    figures = (gaps.counts, gaps.sequence_abs_max, gaps.sequence_mean, gaps.sequence_k3_sum)
    return torch.stack([view.own(figure) for figure in figures])


def worst(batch: DeviceBatch, figures: Array, shard: int | None, keep: int) -> Worst:
    """The worst sequences of a batch, by `figures_of_sequences` of all of it.

    The first `keep` of each ranking keep their raw tokens.
    """
    gaps = {name: _Gap(batch, name, figures[:, place]) for place, name in enumerate(batch.gaps)}
    places = sorted(_first_of_any(gaps.values(), MOST))
    kept = _first_of_any(gaps.values(), keep)
    tokens = {place: sorted(_worst_tokens(gaps.values(), place)) for place in places}
    reader = _Reader(batch)
    positions = reader.read(tokens)
    raw = reader.read({place: reader.window(place, tokens[place][0]) for place in places if place in kept})
    source = batch.source
    return Worst.of(
        WorstSequence(
            shard or 0,
            int(batch.sequences[place]),
            int(batch.offsets[place + 1] - batch.offsets[place]),
            {name: found for name, gap in gaps.items() if (found := gap.figures(place, positions[place]))},
            positions[place],
            None if source.sequence_ids is None else source.sequence_ids[batch.sequences[place]],
            Columns(keep, raw[place]) if place in raw else None,
        )
        for place in places
    )


def largest(values: Array, number: int) -> Array:
    """Places of the `number` largest positive values, of equal ones the first: [N] -> [n] int64, the largest first."""
    if not number:
        return np.zeros(0, np.int64)
    lowest = np.partition(values, -number)[-number] if len(values) > number else 0.0
    places = np.flatnonzero((values >= lowest) & (values > 0))
    return places[np.argsort(-values[places], kind="stable")[:number]]


def _first_of_any(gaps: Iterable["_Gap"], number: int) -> set[int]:
    """The sequences that are the first `number` of a ranking."""
    return {place for gap in gaps for row in gap.values for place in largest(row, number).tolist()}


def _worst_tokens(gaps: Iterable["_Gap"], place: int) -> set[int]:
    """The batch's tokens with the largest |d| of each gap in a sequence; one at least where a gap differs."""
    return {token for gap in gaps if (token := gap.worst_token(place)) is not None}


@dataclass(frozen=True, eq=False)
class _Gap:
    """A gap's figures of the N sequences that have a token, [figures, N] float64."""

    batch: DeviceBatch
    name: str
    of_sequences: Array

    @cached_property
    def values(self) -> Array:
        """[3, N] float32: the magnitudes that RANKED_BY ranks, in its order, as they are stored and merged."""
        values: Array = np.abs(_single(self.of_sequences[1:]))
        return values

    def worst_token(self, place: int) -> int | None:
        """The first of the batch's tokens with the sequence's largest |d|; None where no token differs."""
        if not self.values[0, place]:
            return None
        begin, end = self.batch.offsets[place : place + 2].tolist()
        columns = (self.batch.source.columns[name][begin:end] for name in GAP_LOGPROBS[self.name])
        above, below = (column.astype(self.batch.dtype, copy=False) for column in columns)
        valid = np.isfinite(above) & np.isfinite(below)
        distance = np.abs(np.where(valid, above, 0) - np.where(valid, below, 0))
        return int(begin + distance.argmax())

    def figures(self, place: int, positions: Sequence[Position]) -> GapFigures | None:
        """The sequence's figures; None where it has no valid token."""
        tokens, _, mean, k3 = self.of_sequences[:, place].tolist()
        if not tokens:
            return None
        furthest = abs_log_ratio_max(positions, self.name)
        return GapFigures(int(tokens), furthest, float(_single(mean)), float(_single(k3)))


@dataclass(frozen=True, eq=False)
class _Reader:
    """Reads the log-probs of a few of a batch's tokens as they were sent."""

    batch: DeviceBatch

    def read(self, tokens: Mapping[int, Sequence[int]]) -> dict[int, tuple[Position, ...]]:
        """Tokens by the place of their sequence. Each column is read once for all."""
        source = self.batch.source
        flat = np.fromiter(chain.from_iterable(tokens.values()), np.int64)
        sizes = [len(group) for group in tokens.values()]
        places = np.repeat(np.fromiter(tokens, np.int64, len(tokens)), sizes)
        positions = (flat if source.positions is None else source.positions[flat]) - self._starts[places]
        columns = (_optional(source.columns.get(name), flat) for name in LOGPROBS)
        read = map(Position, positions.tolist(), zip(*columns, strict=True))
        return {place: tuple(islice(read, size)) for place, size in zip(tokens, sizes, strict=True)}

    def window(self, place: int, token: int) -> range:
        """The tokens that are kept of a sequence, around one of them."""
        first, end = self.batch.offsets[place : place + 2].tolist()
        begin = max(min(token - MOST_TOKENS // 2, end - MOST_TOKENS), first)
        return range(begin, min(begin + MOST_TOKENS, end))

    @cached_property
    def _starts(self) -> Array:
        """[N] int64: where the positions of each sequence that has a token begin."""
        lengths = self.batch.source.lengths
        starts: Array = (np.cumsum(lengths) - lengths)[self.batch.sequences]
        return starts


def _single(values: Array | float) -> Array:
    return np.clip(values, -LARGEST, LARGEST).astype(np.float32)


def _optional(column: Array | None, tokens: Array) -> list[float | None]:
    """The values at the tokens, None for what is not finite or was not sent."""
    if column is None:
        return [None] * len(tokens)
    values = column[tokens]
    return [
        value if finite else None for value, finite in zip(values.tolist(), np.isfinite(values).tolist(), strict=True)
    ]
