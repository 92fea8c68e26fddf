"""What a decoded body is: a Message, a Reduced one, or the LaterHalf of a two-phase post, which is none until joined.

Plain values. The first half of a two-phase post is a Message too: it stands for itself, and waits to be joined.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from sys import getsizeof
from typing import Any, Final

import numpy as np

from offpolicy_monitor.batch import Array, RaggedBatch
from offpolicy_monitor.summary.step import StepSummary
from offpolicy_monitor.wire.schema import Envelope
from offpolicy_monitor.wire.sent import SentArray

#: What a message costs without its arrays and texts, an array besides its numbers, and a text besides itself: the list
#: and the tuple that it is in, and what the allocator rounds up.
MESSAGE_BYTES: Final = 2048
ARRAY_BYTES: Final = 192
TEXT_BYTES: Final = 24
#: What a summary takes for each byte of its decompressed parts, and for each of its tables, beside its arrays.
SUMMARY_BYTES: Final = 20
TABLE_BYTES: Final = 2048


@dataclass(frozen=True, eq=False)
class Message:
    """One shard: its envelope and its tokens. The columns may be views of the body they were decoded from."""

    envelope: Envelope
    batch: RaggedBatch

    @property
    def is_first_half(self) -> bool:
        """Whether a rollout is named and the current policy's log-probs are still to come."""
        return self.envelope.rollout is not None and "logprobs" not in self.batch.columns

    @property
    def nbytes(self) -> int:
        """Bytes that keeping this message costs, once it owns them."""
        return self._small_bytes + sum(array.nbytes for array in self._arrays())

    @property
    def copied_bytes(self) -> int:
        """Bytes that it costs now, besides the body that its arrays may be views of."""
        return self._small_bytes + sum(array.nbytes for array in self._arrays() if not _is_view(array))

    @cached_property
    def _small_bytes(self) -> int:
        """What its objects and texts take."""
        envelope = self.envelope
        texts = (*envelope.labels.keys(), *envelope.labels.values(), *(self.batch.sequence_ids or ()))
        of_arrays = ARRAY_BYTES * sum(1 for _ in self._arrays())
        return MESSAGE_BYTES + of_arrays + sum(map(getsizeof, texts)) + TEXT_BYTES * len(texts)

    def _arrays(self) -> Iterator[Array]:
        batch = self.batch
        yield from (batch.offsets, batch.lengths, *batch.columns.values())
        if batch.positions is not None:
            yield batch.positions

    def owned(self) -> "Message":
        """The same message with its arrays copied, so that it can outlive the body."""
        columns = {name: np.array(column) for name, column in self.batch.columns.items()}
        return replace(self, batch=replace(self.batch, columns=columns, lengths=np.array(self.batch.lengths)))


@dataclass(frozen=True, eq=False)
class Reduced:
    """One shard that its trainer reduced: its envelope, its summary, checked, and the parts that it was read from."""

    envelope: Envelope
    summary: StepSummary
    parts: tuple[bytes, ...]

    @property
    def is_first_half(self) -> bool:
        """Never: a summary has no halves."""
        return False

    @property
    def nbytes(self) -> int:
        """Bytes of its parts."""
        return sum(map(len, self.parts))

    @property
    def copied_bytes(self) -> int:
        """Bytes that its parts cost, and the tables and figures that were read from them."""
        arrays = self.summary.arrays
        return SUMMARY_BYTES * self.nbytes + TABLE_BYTES * len(arrays.scheme.keys) + arrays.nbytes


@dataclass(frozen=True, eq=False)
class Evaluation(Message):
    """A stateless evaluation: a message, and the rows of methods asked for (None: the run-time catalogue)."""

    methods: list[dict[str, Any]] | None = None


@dataclass(frozen=True, eq=False)
class LaterHalf:
    """The current policy's log-probs for a rollout whose other log-probs came before.

    It may lack `lengths` and `mask`, so its arrays wait, as sent, for the first half to say what they mean.
    """

    envelope: Envelope
    arrays: Mapping[str, SentArray]


def _is_view(array: Array) -> bool:
    """Whether an array's numbers are those of a body, which is counted where it is kept."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array.base is not None
