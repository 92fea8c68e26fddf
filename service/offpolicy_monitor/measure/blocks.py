"""A RaggedBatch on the device, cut into blocks of whole sequences, and the valid tokens of each gap in a block.

Validity is settled here, by selection: a gap's tokens are those whose log-probs are finite in both of its columns, so
that everything in core sees finite numbers alone. Where all of a batch is finite, which is the rule, nothing is
copied.

Shapes: S sequences, T tokens of the batch; a block holds a run of whole sequences.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import torch
from torch import Tensor

from offpolicy_monitor.batch import LOGPROB_COLUMNS, Array, RaggedBatch
from offpolicy_monitor.core.advantages import Advantages
from offpolicy_monitor.core.columns import token_columns
from offpolicy_monitor.core.gap import Derive, GapTokens
from offpolicy_monitor.core.ragged import Segments

#: gap -> (numerator column, denominator column)
GAP_COLUMNS: Final[Mapping[str, tuple[str, str]]] = {
    "mismatch": ("old_logprobs", "sampling_logprobs"),
    "staleness": ("logprobs", "old_logprobs"),
    "total": ("logprobs", "sampling_logprobs"),
}

#: Beyond this magnitude the square of a float32 log-ratio nears overflow: such a batch is measured in float64.
LARGEST_FLOAT32_LOGPROB: Final = 1e15


@dataclass(frozen=True, eq=False)
class DeviceBatch:
    """Columns of a batch as tensors on the device; `source` is the batch itself, for its other columns.

    columns     log-prob name -> [T] float32 or float64
    finite      log-prob name -> [T] bool, for the columns alone that hold a non-finite value
    advantages  [S] or [T] float, or None; `advantages_a_token` says which
    derive      core.columns.token_columns, or a compiled form of it
    """

    source: RaggedBatch
    offsets: Array
    columns: Mapping[str, Tensor]
    finite: Mapping[str, Tensor]
    advantages: Tensor | None
    advantages_a_token: bool
    device: torch.device
    derive: Derive = token_columns

    @classmethod
    def load(cls, batch: RaggedBatch, device: torch.device, derive: Derive = token_columns) -> "DeviceBatch":
        """Bring the columns to the device (no copy on the CPU) and find what is not finite."""
        columns = {name: _tensor(batch.columns[name], device) for name in LOGPROB_COLUMNS if name in batch.columns}
        finite = {
            name: torch.isfinite(column)
            for name, column in columns.items()
            if len(column) and not bool(torch.isfinite(column.sum(dtype=torch.float64)))
        }
        if any(_is_extreme(column, finite.get(name)) for name, column in columns.items()):
            columns = {name: column.double() for name, column in columns.items()}
        advantages = batch.columns.get("advantages")
        return cls(
            batch,
            batch.offsets,
            columns,
            finite,
            None if advantages is None else _tensor(advantages, device),
            "advantages" in batch.a_token,
            device,
            derive,
        )

    @property
    def gaps(self) -> tuple[str, ...]:
        """The gaps whose two columns were sent."""
        return tuple(gap for gap, pair in GAP_COLUMNS.items() if self.columns.keys() >= set(pair))

    def blocks(self, tokens: int) -> Iterator["Block"]:
        """Whole sequences in order, at most `tokens` tokens a block; a longer sequence is a block of its own."""
        first, sequences = 0, len(self.offsets) - 1
        while first < sequences:
            limit = int(np.searchsorted(self.offsets, self.offsets[first] + tokens, side="right")) - 1
            last = min(max(limit, first + 1), sequences)
            yield Block(self, first, last)
            first = last

    def whole(self) -> "Block":
        """All sequences as one block."""
        return Block(self, 0, len(self.offsets) - 1)


@dataclass(frozen=True, eq=False)
class ValidTokens:
    """A gap's valid tokens in a block, and where they stand in it.

    sequences  [N] int64 (CPU): which of the block's sequences have a valid token
    tokens     [n] int64: which of the block's tokens are valid, or None for all
    """

    gap: GapTokens
    sequences: Tensor
    tokens: Tensor | None


@dataclass(frozen=True, eq=False)
class Block:
    """Sequences first..last (exclusive) of a batch. Columns, sequences and advantages are shared by its gaps."""

    batch: DeviceBatch
    first: int
    last: int

    @cached_property
    def token_range(self) -> slice:
        """The block's tokens within the batch."""
        return slice(int(self.batch.offsets[self.first]), int(self.batch.offsets[self.last]))

    @cached_property
    def lengths(self) -> Tensor:
        """[S] int64 on the CPU: tokens of each of the block's sequences, empty ones included."""
        return torch.from_numpy(np.diff(self.batch.offsets[self.first : self.last + 1]))

    def valid(self, gap: str) -> ValidTokens | None:
        """The valid tokens of a gap; None where there are none."""
        numerator, denominator = GAP_COLUMNS[gap]
        return self._select(numerator, denominator, (numerator, denominator))

    def jointly_valid(self, gap: str) -> ValidTokens | None:
        """The tokens of a gap where all three log-probs are finite, so that gaps can be compared token by token."""
        return self._select(*GAP_COLUMNS[gap], LOGPROB_COLUMNS)

    @cached_property
    def _selected(self) -> dict[tuple[str, ...], ValidTokens | None]:
        return {}

    def _select(self, numerator: str, denominator: str, needed: tuple[str, ...]) -> ValidTokens | None:
        """Where nothing is excluded, the same object for the same gap: its columns are computed once."""
        partial = tuple(name for name in needed if name in self.batch.finite)
        key = (numerator, denominator, *partial)
        if key not in self._selected:
            self._selected[key] = self._select_new(numerator, denominator, partial)
        return self._selected[key]

    def _select_new(self, numerator: str, denominator: str, partial: tuple[str, ...]) -> ValidTokens | None:
        masks = [self.batch.finite[name][self.token_range] for name in partial]
        if not masks:
            if not len(self._sequences):
                return None
            gap = self._gap(self._columns[numerator], self._columns[denominator], self._segments, self._advantages)
            return ValidTokens(gap, self._sequences, None)
        chosen = torch.stack(masks).all(0)
        tokens = torch.nonzero(chosen).squeeze(1)
        if not len(tokens):
            return None
        counts = self._segments.selected(chosen)
        kept = torch.nonzero(counts).squeeze(1)
        segments = Segments(counts[kept], self.batch.device)
        columns = [self._columns[name][tokens] for name in (numerator, denominator)]
        gap = self._gap(columns[0], columns[1], segments, self._selected_advantages(tokens, kept, segments))
        return ValidTokens(gap, self._sequences[kept], tokens)

    def _gap(self, a: Tensor, b: Tensor, segments: Segments, advantages: Advantages | None) -> GapTokens:
        return GapTokens(a, b, segments, advantages, self.batch.derive)

    @cached_property
    def _sequences(self) -> Tensor:
        return torch.nonzero(self.lengths).squeeze(1)

    @cached_property
    def _segments(self) -> Segments:
        return Segments(self.lengths[self._sequences], self.batch.device)

    @cached_property
    def _columns(self) -> Mapping[str, Tensor]:
        return {name: column[self.token_range] for name, column in self.batch.columns.items()}

    @cached_property
    def _advantages(self) -> Advantages | None:
        values = self.batch.advantages
        if values is None:
            return None
        if self.batch.advantages_a_token:
            return Advantages(values[self.token_range], True, self._segments)
        return Advantages(values[self.first : self.last][self._sequences.to(values.device)], False, self._segments)

    def _selected_advantages(self, tokens: Tensor, kept: Tensor, segments: Segments) -> Advantages | None:
        whole = self._advantages
        if whole is None:
            return None
        chosen = tokens if whole.a_token else kept.to(whole.values.device)
        return Advantages(whole.values[chosen], whole.a_token, segments)


def _tensor(array: Array, device: torch.device) -> Tensor:
    return torch.from_numpy(np.require(array, requirements=["C", "A", "W"])).to(device, non_blocking=True)


def _is_extreme(column: Tensor, finite: Tensor | None) -> bool:
    values = column if finite is None else column[finite]
    return bool(len(values)) and float(values.abs().amax()) > LARGEST_FLOAT32_LOGPROB
