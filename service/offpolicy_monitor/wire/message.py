"""What a decoded body is: a Message, a Reduced one, or the LaterHalf of a two-phase post, which is none until joined.

Plain values. The first half of a two-phase post is a Message too: it stands for itself, and waits to be joined.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from offpolicy_monitor.batch import RaggedBatch
from offpolicy_monitor.summary.step import StepSummary
from offpolicy_monitor.wire.schema import Envelope
from offpolicy_monitor.wire.sent import SentArray


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
        batch = self.batch
        arrays = [batch.offsets, batch.lengths, *batch.columns.values()]
        ids = sum(map(len, batch.sequence_ids or ()))
        return ids + sum(a.nbytes for a in arrays) + (0 if batch.positions is None else batch.positions.nbytes)

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
