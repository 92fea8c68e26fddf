"""A message as bytes, for another process of this service: the arrays that it has, as they are, in a frame.

Not the body that it came in: that is gone, and what its mask left out with it. Both ends are of one version.
"""

import json
from collections.abc import Sequence
from typing import Any

from offpolicy_monitor.batch import RaggedBatch
from offpolicy_monitor.wire import frame
from offpolicy_monitor.wire.message import Message
from offpolicy_monitor.wire.schema import Envelope

#: Names that no column has.
_PLACES = ("offsets", "lengths", "positions")
_COLUMN = "column."


def buffers_of(message: Message) -> Sequence[bytes | memoryview]:
    """The message as buffers, one after the other."""
    batch = message.batch
    arrays = {name: array for name in _PLACES if (array := getattr(batch, name)) is not None}
    arrays |= {_COLUMN + name: column for name, column in batch.columns.items()}
    beside = {
        "envelope": message.envelope.model_dump(mode="json"),
        "per_token": sorted(batch.per_token),
        "sequence_ids": batch.sequence_ids,
        "dtypes": dict(batch.dtypes),
    }
    return frame.encode(beside, arrays)


def message_of(stored: bytes) -> Message:
    """What `buffers_of` gave."""
    found = frame.decode(memoryview(stored), len(stored), len(stored))
    arrays = {name: tensor.array for name, tensor in found.tensors.items()}
    beside: dict[str, Any] = found.envelope
    ids = beside["sequence_ids"]
    batch = RaggedBatch(
        arrays["offsets"],
        {name.removeprefix(_COLUMN): array for name, array in arrays.items() if name.startswith(_COLUMN)},
        arrays["lengths"],
        arrays.get("positions"),
        frozenset(beside["per_token"]),
        None if ids is None else tuple(ids),
        beside["dtypes"],
    )
    return Message(Envelope.model_validate_json(json.dumps(beside["envelope"])), batch).owned()
