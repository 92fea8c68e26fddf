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
    finite      [C, T] bool on the host, or None where all of all columns is finite
    advantages  [N] or [T] float, or None; `advantages_per_token` says which
    sequences   [N] int64 on the host: which of the batch's sequences have a token
    offsets     [N+1] int64 on the host: where their tokens begin and end
    """

    source: RaggedBatch
    names: tuple[str, ...]
    columns: tuple[Tensor, ...]
    finite: Array | None
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
            finite,
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
    def pairs(self) -> Sequence[tuple[int, int]]:
        """The columns of the numerator and of the denominator of each stacked gap.

        Those of `gaps`, and where some tokens are not valid the same over the tokens that are valid for all.
        """
        sides = [GAP_LOGPROBS[gap] for gap in self.gaps]
        own = [(self.names.index(above), self.names.index(below)) for above, below in sides]
        return own if self.finite is None else own + [own[index] for index in range(len(self.joint))]

    @cached_property
    def marks(self) -> Array | None:
        """[G', T] bool on the host: the valid tokens of each stacked gap; None where all are."""
        if self.finite is None:
            return None
        marks = np.array([self.finite[above] & self.finite[below] for above, below in self.pairs])
        marks[len(self.gaps) :] = self.finite.all(0)
        return marks

    @cached_property
    def valid(self) -> Tensor | None:
        """`marks` on the device."""
        return None if self.marks is None else _tensor(self.marks, self.device)

    @cached_property
    def _finite(self) -> Sequence[Tensor | None]:
        return [None] * len(self.names) if self.finite is None else _tensor(self.finite, self.device).unbind()

    def finite_of(self, column: int) -> Tensor | None:
        """[T] bool: where a column is finite; None where all of all columns is."""
        return self._finite[column]

    @cached_property
    def log_probs(self) -> Mapping[str, Tensor]:
        """Every log-prob that was sent, by its name: [T] float32 or float64, 0 where not finite. Those that are in no
        gap come to the device when they are first asked for."""
        others = {name: _tensor(values, self.device) for name, (values, _) in self._in_no_gap.items()}
        return dict(zip(self.names, self.columns, strict=True)) | others

    @cached_property
    def finite_tokens(self) -> Mapping[str, Array]:
        """[T] bool on the host: which tokens of a log-prob are finite, of those of which not all are."""
        own = {} if self.finite is None else dict(zip(self.names, self.finite, strict=True))
        own |= {name: finite for name, (_, finite) in self._in_no_gap.items()}
        return {name: finite for name, finite in own.items() if not finite.all()}

    @cached_property
    def _in_no_gap(self) -> Mapping[str, tuple[Array, Array]]:
        """Log-probs that are in no gap, 0 where not finite, and where they are finite."""
        names = [name for name in (*RESCORED, *SUPPORTS.values()) if name in self.source.columns]
        found = {name: np.isfinite(self.source.columns[name]) for name in names}
        return {name: (_zeroed(self.source.columns[name], finite), finite) for name, finite in found.items()}

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
        if self.marks is not None:
            token = int(np.argmax(self.marks[self.gaps.index(gap)]))
        pair = (side[token : token + 1].astype(self.dtype) for side in (above, below))
        with np.errstate(invalid="ignore", over="ignore"):
            found = float(np.subtract(*pair).sum())
        return found if np.isfinite(found) else 0.0

    def log_ratio(self, gap: str) -> tuple[Tensor, Tensor | None]:
        """d [T] of a gap over the whole batch, finite, and which tokens are valid; None for all."""
        index = self.gaps.index(gap)
        above, below = self.pairs[index]
        return self.columns[above] - self.columns[below], None if self.valid is None else self.valid[index]


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
        segments, joint = Segments(self.lengths, batch.device), batch.joint
        policies = torch.stack([column[span] for column in batch.columns])
        valid = None if batch.valid is None else batch.valid[:, span]
        crossed = (joint["mismatch"], joint["staleness"]) if joint else None
        centres = _tensor(np.resize(batch.centres, len(batch.pairs)), batch.device)
        return Gaps(policies, batch.pairs, segments, self._advantages(segments), valid, crossed, centres)

    def valid_tokens(self, gap: int) -> Tensor | None:
        """[V] int64: which of the block's tokens are valid for a stacked gap, ascending; None where all are."""
        marks = self.batch.marks
        return None if marks is None else _tensor(np.flatnonzero(marks[gap, self.token_range]), self.batch.device)

    def _advantages(self, segments: Segments) -> Advantages | None:
        values = self.batch.advantages
        if values is None:
            return None
        per_token = self.batch.advantages_per_token
        own = values[self.token_range if per_token else slice(self.first, self.last)]
        return Advantages(own, per_token, segments)


def _settled(batch: RaggedBatch, names: Sequence[str]) -> tuple[list[Array], Array | None]:
    """The columns with 0 where not finite, in float64 where one is too large for float32; and what is finite."""
    columns, finite = [batch.columns[name] for name in names], None
    most = np.abs(list(batch.ends.values())).max(initial=0.0)
    if not np.isfinite(most):
        finite = np.array([np.isfinite(column) for column in columns])
        columns = [np.where(mask, column, 0) for mask, column in zip(finite, columns, strict=True)]
        most = max(np.abs(column).max() for column in columns)
    if most > LARGEST_FLOAT32_LOGPROB:
        columns = [column.astype(np.float64) for column in columns]
    return columns, finite


def _zeroed(values: Array, finite: Array) -> Array:
    """The values, 0 where they are not finite: no copy of those that all are."""
    return values if finite.all() else np.where(finite, values, values.dtype.type(0))


def _tensor(array: Array, device: torch.device) -> Tensor:
    return torch.from_numpy(np.require(array, requirements=["C", "A", "W"])).to(device, non_blocking=True)
