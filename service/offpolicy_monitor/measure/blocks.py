"""A RaggedBatch on the device, and the gaps of a block of whole sequences of it.

Validity is settled here, on the host, where the batch comes from: a log-prob that is not finite becomes 0, and a mask
says so. Where all of a batch is finite, which is the rule, there is no mask. Sequences without a token are left out;
the others are counted among themselves.

Shapes: N sequences with a token, T tokens of the batch, C log-prob columns; a block holds a run of whole sequences.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from offpolicy_monitor.batch import Array, RaggedBatch
from offpolicy_monitor.core.advantages import Advantages
from offpolicy_monitor.core.device import where
from offpolicy_monitor.core.gap import Gaps
from offpolicy_monitor.core.ragged import Segments
from offpolicy_monitor.vocabulary import GAP_LOGPROBS, LOGPROBS, RESCORED, SUPPORTS

#: Beyond this magnitude the square of a float32 log-ratio nears overflow: such a batch is measured in float64.
LARGEST_FLOAT32_LOGPROB: Final = 1e15


@dataclass(frozen=True, eq=False)
class DeviceBatch:
    """Columns of a batch as tensors on the device; `source` is the batch itself, for its other columns.

    names       the log-prob columns that were sent, in the order of `columns`
    columns     [T] float32 or float64 each, 0 where not finite
    finite      [T] bool each, or None where all of all columns is finite
    advantages  [N] or [T] float, or None; `advantages_per_token` says which
    sequences   [N] int64 on the host: which of the batch's sequences have a token
    offsets     [N+1] int64 on the host: where their tokens begin and end
    """

    source: RaggedBatch
    names: tuple[str, ...]
    columns: tuple[Tensor, ...]
    finite: tuple[Tensor, ...] | None
    advantages: Tensor | None
    sequences: Array
    offsets: Array
    device: torch.device

    @classmethod
    def load(cls, batch: RaggedBatch, device: torch.device) -> "DeviceBatch":
        """Bring the columns to the device: no copy on the CPU of a batch that is finite."""
        names = tuple(name for name in LOGPROBS if name in batch.columns)
        columns, finite = _settled(batch, names)
        sequences = np.flatnonzero(np.diff(batch.offsets))
        advantages = batch.columns.get("advantages")
        if advantages is not None and "advantages" not in batch.per_token:
            advantages = advantages[sequences] if len(sequences) < batch.sequences else advantages
        return cls(
            batch,
            names,
            tuple(_tensor(column, device) for column in columns),
            None if finite is None else tuple(_tensor(mask, device) for mask in finite),
            None if advantages is None else _tensor(advantages, device),
            sequences,
            np.append(batch.offsets[sequences], batch.offsets[-1]),
            device,
        )

    @cached_property
    def gaps(self) -> tuple[str, ...]:
        """The gaps whose two columns were sent."""
        return tuple(gap for gap, pair in GAP_LOGPROBS.items() if set(self.names) >= set(pair))

    @cached_property
    def beside(self) -> Mapping[str, tuple[Tensor, Tensor | None]]:
        """Log-probs that are in no gap, of those that were sent: [T], 0 where not finite, and [T] bool which are
        finite, None for all. They come to the device when they are first asked for."""
        names = [name for name in (*RESCORED, *SUPPORTS.values()) if name in self.source.columns]
        return {name: self._brought(self.source.columns[name]) for name in names}

    def _brought(self, column: Array) -> tuple[Tensor, Tensor | None]:
        finite = np.isfinite(column)
        if finite.all():
            return _tensor(column, self.device), None
        return _tensor(np.where(finite, column, 0), self.device), _tensor(finite, self.device)

    @property
    def dtype(self) -> type[np.floating[Any]]:
        """What log-probs are measured in."""
        return np.float64 if self.columns and self.columns[0].dtype == torch.float64 else np.float32

    @property
    def advantages_per_token(self) -> bool:
        """Whether there is an advantage per token."""
        return "advantages" in self.source.per_token

    @property
    def whole_advantages(self) -> Advantages | None:
        """Those of all tokens of the batch; None where they were not sent."""
        if self.advantages is None:
            return None
        return Advantages(self.advantages, self.advantages_per_token, Segments(np.diff(self.offsets), self.device))

    @cached_property
    def joint(self) -> Mapping[str, int]:
        """Which of a block's stacked gaps are over the tokens that are valid for all; none unless there are three.

        Where nothing is excluded they are the gaps themselves.
        """
        if len(self.gaps) < len(GAP_LOGPROBS):
            return {}
        return {gap: index + (0 if self.finite is None else len(self.gaps)) for index, gap in enumerate(self.gaps)}

    def blocks(self, tokens: int) -> Iterator["Block"]:
        """Whole sequences in order, at most `tokens` tokens per block; a longer sequence is a block of its own."""
        first, sequences = 0, len(self.sequences)
        while first < sequences:
            limit = int(np.searchsorted(self.offsets, self.offsets[first] + tokens, side="right")) - 1
            last = min(max(limit, first + 1), sequences)
            yield Block(self, first, last)
            first = last

    @cached_property
    def centres(self) -> Array:
        """[G] float64 on the host, nats: the first d of each gap, of a token that is valid if one is."""
        return np.array([self._first(gap) for gap in self.gaps])

    def _first(self, gap: str) -> float:
        above, below = (self.source.columns[name] for name in GAP_LOGPROBS[gap])
        token = 0
        if self.finite is not None:
            token = int(np.argmax(np.isfinite(above) & np.isfinite(below)))
        pair = (side[token : token + 1].astype(self.dtype) for side in (above, below))
        with np.errstate(invalid="ignore", over="ignore"):
            found = float(np.subtract(*pair).sum())
        return found if np.isfinite(found) else 0.0

    def log_ratio(self, gap: str) -> tuple[Tensor, Tensor | None]:
        """d [T] of a gap over the whole batch, 0 where not valid, and which tokens are valid; None for all."""
        above, below = (self.names.index(name) for name in GAP_LOGPROBS[gap])
        d = self.columns[above] - self.columns[below]
        if self.finite is None:
            return d, None
        valid = self.finite[above] & self.finite[below]
        return where(valid, d, 0.0), valid


@dataclass(frozen=True, eq=False)
class Block:
    """Sequences first..last (exclusive) of those of a batch that have a token."""

    batch: DeviceBatch
    first: int
    last: int

    @cached_property
    def token_range(self) -> slice:
        """The block's tokens within the batch."""
        return slice(int(self.batch.offsets[self.first]), int(self.batch.offsets[self.last]))

    @cached_property
    def lengths(self) -> Array:
        """[N] int64 on the host: tokens of each of the block's sequences."""
        lengths: Array = np.diff(self.batch.offsets[self.first : self.last + 1])
        return lengths

    @property
    def sequences(self) -> Array:
        """[N] int64 on the host: which of the batch's sequences they are."""
        return self.batch.sequences[self.first : self.last]

    @cached_property
    def gaps(self) -> Gaps:
        """The batch's gaps over their valid tokens, and where some are not valid, over those valid for all."""
        batch, span = self.batch, self.token_range
        names = [GAP_LOGPROBS[gap] for gap in batch.gaps]
        pairs = [(batch.names.index(above), batch.names.index(below)) for above, below in names]
        valid = None
        if batch.finite is not None:
            finite = [mask[span] for mask in batch.finite]
            masks = [finite[above] & finite[below] for above, below in pairs]
            if batch.joint:
                pairs, masks = pairs * 2, masks + [masks[0] & masks[1]] * len(pairs)
            valid = torch.stack(masks)
        segments = Segments(self.lengths, batch.device)
        policies = torch.stack([column[span] for column in batch.columns])
        return Gaps(policies, pairs, segments, self._advantages(segments), valid)

    def _advantages(self, segments: Segments) -> Advantages | None:
        values = self.batch.advantages
        if values is None:
            return None
        per_token = self.batch.advantages_per_token
        own = values[self.token_range if per_token else slice(self.first, self.last)]
        return Advantages(own, per_token, segments)


def _settled(batch: RaggedBatch, names: Sequence[str]) -> tuple[list[Array], list[Array] | None]:
    """The columns with 0 where not finite, in float64 where one is too large for float32; and what is finite."""
    columns, finite = [batch.columns[name] for name in names], None
    most = np.abs(list(batch.ends.values())).max(initial=0.0)
    if not np.isfinite(most):
        finite = [np.isfinite(column) for column in columns]
        columns = [np.where(mask, column, 0) for mask, column in zip(finite, columns, strict=True)]
        most = max(np.abs(column).max() for column in columns)
    if most > LARGEST_FLOAT32_LOGPROB:
        columns = [column.astype(np.float64) for column in columns]
    return columns, finite


def _tensor(array: Array, device: torch.device) -> Tensor:
    return torch.from_numpy(np.require(array, requirements=["C", "A", "W"])).to(device, non_blocking=True)
