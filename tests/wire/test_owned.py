"""A message goes to another process as it is."""

from typing import Any

import numpy as np
from offpolicy_monitor.wire.digest import content_digest
from offpolicy_monitor.wire.message import Message
from offpolicy_monitor.wire.owned import buffers_of, message_of

from tests.wire.bodies import decode_json

BODY: dict[str, Any] = {
    "step": 1, "rollout": "r", "labels": {"engine": "vllm"}, "sequence_ids": ["a", "b", "c"], "lengths": [2, 0, 2],
    "mask": [1, 0, 1, 1], "sampling_logprobs": [-1, -2, -3, -4], "old_logprobs": [-1.1, -2.1, None, -4.1],
    "advantages": [0.5, 7.0, -0.5],
}  # fmt: skip


def moved(message: Message) -> Message:
    return message_of(b"".join(map(bytes, buffers_of(message))))


def test_a_half_is_the_same_after_the_way() -> None:
    for body in (BODY, {name: value for name, value in BODY.items() if name not in ("mask", "sequence_ids")}):
        sent = decode_json(**body)
        found = moved(sent)
        assert found.envelope == sent.envelope
        assert content_digest(found) == content_digest(sent)
        for name in ("offsets", "lengths", "positions"):
            np.testing.assert_array_equal(getattr(found.batch, name), getattr(sent.batch, name))
        assert (found.batch.sequence_ids, found.batch.dtypes) == (sent.batch.sequence_ids, sent.batch.dtypes)
        assert found.batch.columns.keys() == sent.batch.columns.keys()
        assert found.batch.per_token == sent.batch.per_token
        assert all(column.flags.writeable for column in found.batch.columns.values())
