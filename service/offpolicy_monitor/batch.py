"""RaggedBatch: one shard's tokens under the mask, packed, with the sequences they belong to.

The only form in which token data travels inside the service. What it promises is checked once, in the constructor, so
that nothing after it looks at shapes again. It knows numpy and names alone: no HTTP, no torch, no figures.

Shapes: S sequences, P positions as sent (padding and masked ones included), T tokens (positions whose mask is 1).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from offpolicy_monitor.vocabulary import LOGPROBS

Array = NDArray[Any]

#: Dtypes on the wire whose own rounding would look like a grid.
_COARSE_DTYPES: Final = frozenset({"bfloat16", "float16"})


@dataclass(frozen=True)
class Origin:
    """Where a batch comes from: version of the current policy, number of its shard, labels. None and {} if unknown."""

    policy_version: int | None = None
    shard: int | None = None
    labels: Mapping[str, str] = field(default_factory=dict)


UNKNOWN_ORIGIN = Origin()


@dataclass(frozen=True, eq=False)
class RaggedBatch:
    """Tokens under the mask, packed.

    offsets    [S+1] int64, non-decreasing, from 0 to T: sequence i owns tokens offsets[i]:offsets[i+1]
    columns    name on the wire -> [T] or [S] or [T, ...]; log-probs are float32 or float64 and all of one dtype
    per_token  the columns that have one entry per token; the others have one per sequence (T may equal S)
    lengths    [S] int64: positions of each sequence as sent
    positions  [T] int64 into the P positions, or None where every position is a token
    """

    offsets: Array
    columns: Mapping[str, Array]
    lengths: Array
    positions: Array | None = None
    per_token: frozenset[str] = frozenset()
    sequence_ids: tuple[str, ...] | None = None
    dtypes: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        sequences, tokens = len(self.offsets) - 1, int(self.offsets[-1])
        if self.offsets[0] != 0 or np.count_nonzero(self.offsets[1:] < self.offsets[:-1]):
            raise ValueError("offsets must start at 0 and not decrease")
        if len(self.lengths) != sequences:
            raise ValueError(f"lengths has {len(self.lengths)} entries for {sequences} sequences")
        for name, column in self.columns.items():
            if len(column) != (tokens if name in self.per_token else sequences):
                raise ValueError(f"{name} has {len(column)} entries for {tokens} tokens in {sequences} sequences")
        if self.positions is not None and len(self.positions) != tokens:
            raise ValueError(f"positions has {len(self.positions)} entries for {tokens} tokens")
        present = [self.columns[name] for name in LOGPROBS if name in self.columns]
        for column in present:
            if column.shape != (tokens,):
                raise ValueError("a log-prob column does not have one entry per token")
            if column.dtype != present[0].dtype or column.dtype.kind != "f":
                raise ValueError("log-prob columns must share one floating dtype")

    @property
    def tokens(self) -> int:
        """T: positions under the mask."""
        return int(self.offsets[-1])

    @property
    def sequences(self) -> int:
        """S: sequences as sent, empty ones included."""
        return len(self.offsets) - 1

    @cached_property
    def ends(self) -> Mapping[str, tuple[float, float]]:
        """The smallest and the largest value of each log-prob of a gap, NaN where any is; nothing without a token."""
        with np.errstate(invalid="ignore"):
            return {
                name: (float(self.columns[name].min()), float(self.columns[name].max()))
                for name in LOGPROBS
                if name in self.columns and self.tokens
            }

    @property
    def is_fine(self) -> bool:
        """Whether no log-prob came in a dtype so coarse that a grid in it says nothing of the policies."""
        return _COARSE_DTYPES.isdisjoint(self.dtypes.values())

    @classmethod
    def from_positions(
        cls,
        lengths: Array,
        token_columns: Mapping[str, Array],
        sequence_columns: Mapping[str, Array],
        mask: Array | None = None,
        **rest: Any,
    ) -> "RaggedBatch":
        """Pack columns given per position ([P], sequences one after the other) by dropping what the mask excludes.

        lengths [S] int64 with sum P; token_columns [P, ...]; sequence_columns [S, ...]; mask [P] bool or None (all).
        """
        starts = np.zeros(len(lengths) + 1, np.int64)
        np.add.accumulate(lengths, out=starts[1:])
        if mask is None or np.count_nonzero(mask) == len(mask):
            columns = {**token_columns, **sequence_columns}
            return cls(starts, columns, lengths, None, frozenset(token_columns), **rest)
        positions = np.flatnonzero(mask)
        offsets = np.searchsorted(positions, starts).astype(np.int64)
        columns = {name: column[positions] for name, column in token_columns.items()} | dict(sequence_columns)
        return cls(offsets, columns, lengths, positions, frozenset(token_columns), **rest)
