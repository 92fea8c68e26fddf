"""Maker of Worst: the sequences of a block that stand first in some ranking of summary.worst.

Rankings are cut by figures a sequence, which are there already; only of the few that are left are tokens looked at.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from typing import TYPE_CHECKING, Final

import numpy as np

from offpolicy_monitor.batch import Array, RaggedBatch
from offpolicy_monitor.measure.blocks import Block, ValidTokens
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

if TYPE_CHECKING:
    from offpolicy_monitor.measure.tables import BlockView

#: Raw tokens kept of a sequence; of a longer one, those around its worst token.
MOST_TOKENS: Final = 4096


def worst(view: "BlockView", keep: int) -> Worst:
    """The worst sequences of a block; the first `keep` of each ranking keep their raw tokens."""
    gaps = {name: _Gap(valid) for name, valid in view.valid.items()}
    places = sorted(_first_of_any(gaps.values(), MOST))
    kept = _first_of_any(gaps.values(), keep)
    tokens = {place: sorted(_worst_tokens(gaps.values(), place)) for place in places}
    reader = _Reader(view.block)
    positions = reader.read(tokens)
    raw = reader.read({place: reader.window(place, tokens[place][0]) for place in places if place in kept})
    columns = {place: Columns(keep, found) for place, found in raw.items()}
    shard, batch, first = view.origin.shard or 0, view.block.batch.source, view.block.first
    return Worst.of(
        WorstSequence(
            shard,
            first + place,
            int(view.block.lengths[place]),
            {name: found for name, gap in gaps.items() if (found := gap.figures(place, positions[place], name))},
            positions[place],
            None if batch.sequence_ids is None else batch.sequence_ids[first + place],
            columns.get(place),
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
    """Places in the block of the first `number` of each ranking."""
    return {place for gap in gaps for row in gap.values for place in gap.sequences[largest(row, number)].tolist()}


def _worst_tokens(gaps: Iterable["_Gap"], place: int) -> set[int]:
    """The block's tokens with the largest |d| of each gap in a sequence; one at least where a gap differs."""
    return {token for gap in gaps if (token := gap.worst_token(place)) is not None}


@dataclass(frozen=True, eq=False)
class _Gap:
    """A gap of the block as arrays on the CPU: N sequences with a valid token."""

    valid: ValidTokens

    @cached_property
    def values(self) -> Array:
        """[3, N] float32: the magnitudes that RANKED_BY ranks, in its order, as they are stored and merged."""
        gap = self.valid.gap
        furthest, k3 = (_single(figure.cpu().numpy()) for figure in (gap.sequence_abs_max, gap.sequence_k3_sum))
        values: Array = np.abs(np.stack([furthest, self.means, k3]))
        return values

    @cached_property
    def means(self) -> Array:
        """[N] float32: mean d, nats."""
        return _single(self.valid.gap.sequence_mean.cpu().numpy())

    @cached_property
    def sequences(self) -> Array:
        """[N] int64, ascending: their places in the block."""
        return self.valid.sequences.numpy()

    @cached_property
    def lengths(self) -> Array:
        """[N] int64: valid tokens of each."""
        return self.valid.gap.segments.lengths.numpy()

    @cached_property
    def ends(self) -> Array:
        """[N] int64: where each one's valid tokens end."""
        ends: Array = np.cumsum(self.lengths)
        return ends

    def find(self, place: int) -> int | None:
        """Which of the N is the sequence at a place of the block."""
        found = int(np.searchsorted(self.sequences, place))
        return found if found < len(self.sequences) and self.sequences[found] == place else None

    def worst_token(self, place: int) -> int | None:
        """The first of the block's tokens with the sequence's largest |d|; None where no token differs."""
        found = self.find(place)
        if found is None or not self.values[0, found]:
            return None
        end = int(self.ends[found])
        begin = end - int(self.lengths[found])
        token = begin + int(self.valid.gap.columns.log_ratio_abs[begin:end].cpu().numpy().argmax())
        return token if self.valid.tokens is None else int(self.valid.tokens[token])

    def figures(self, place: int, positions: Sequence[Position], name: str) -> GapFigures | None:
        """The sequence's figures of this gap, called `name`; None where it has no valid token."""
        found = self.find(place)
        if found is None:
            return None
        return GapFigures(
            int(self.lengths[found]),
            abs_log_ratio_max(positions, name),
            float(self.means[found]),
            float(self.values[2, found]),
        )


@dataclass(frozen=True, eq=False)
class _Reader:
    """Reads the log-probs of a few of a block's tokens from the batch as it was sent."""

    block: Block

    def read(self, tokens: Mapping[int, Sequence[int]]) -> dict[int, tuple[Position, ...]]:
        """Tokens of the block, by the place of their sequence in it. Each column is read once for all."""
        flat = np.fromiter(chain.from_iterable(tokens.values()), np.int64) + self.block.token_range.start
        sizes = [len(group) for group in tokens.values()]
        places = np.repeat(np.fromiter(tokens, np.int64, len(tokens)), sizes)
        positions = (flat if self._batch.positions is None else self._batch.positions[flat]) - self._starts[places]
        columns = (_optional(self._batch.columns.get(name), flat) for name in LOGPROBS)
        read = map(Position, positions.tolist(), zip(*columns, strict=True))
        return {place: tuple(islice(read, size)) for place, size in zip(tokens, sizes, strict=True)}

    def window(self, place: int, token: int) -> range:
        """The tokens of the block that are kept of a sequence, around one of them."""
        offsets = self._batch.offsets[self.block.first + place :][:2] - self.block.token_range.start
        first, end = offsets.tolist()
        begin = max(min(token - MOST_TOKENS // 2, end - MOST_TOKENS), first)
        return range(begin, min(begin + MOST_TOKENS, end))

    @property
    def _batch(self) -> RaggedBatch:
        return self.block.batch.source

    @cached_property
    def _starts(self) -> Array:
        """[S] int64: where the positions of each sequence of the block begin."""
        batch, first, last = self._batch, self.block.first, self.block.last
        if batch.positions is None:
            return batch.offsets[first:last]
        lengths = batch.lengths[first:last]
        return int(batch.lengths[:first].sum()) + np.cumsum(lengths) - lengths


def _single(values: Array) -> Array:
    return values.clip(-LARGEST, LARGEST).astype(np.float32)


def _optional(column: Array | None, tokens: Array) -> list[float | None]:
    """The values at the tokens, None for what is not finite or was not sent."""
    if column is None:
        return [None] * len(tokens)
    values = column[tokens]
    return [
        value if finite else None for value, finite in zip(values.tolist(), np.isfinite(values).tolist(), strict=True)
    ]
