"""What a client sends under a key: made of the key alone, so that it can be made again for the audit.

Knows the wire and the oracle's sequences; nothing of who sends it or what became of it.
"""

import json
from functools import lru_cache
from hashlib import md5
from typing import NamedTuple

import numpy as np
from offpolicy_monitor.wire import frame
from offpolicy_monitor.wire.decode import decode_batch
from offpolicy_monitor.wire.digest import content_digest
from offpolicy_monitor.wire.message import Message

from tests.reference import COLUMNS, Sequence
from tests.strategies import random_sequences
from tests.wire.bodies import LIMITS, frame_body

#: Shards of each step.
SHARDS = 3


class Key(NamedTuple):
    """Which shard: of attempt 0 and gradient step 0."""

    run: str
    step: int
    shard: int


@lru_cache(maxsize=4096)
def sequences(key: Key) -> list[Sequence]:
    """Three or four short sequences, arbitrary floats."""
    seed = int.from_bytes(md5(repr(tuple(key)).encode()).digest()[:4], "little")
    lengths = [1 + (seed >> shift) % 9 for shift in range(3 + seed % 2)]
    return random_sequences(seed, lengths, noise=0.1)


def body(key: Key) -> tuple[str, bytes]:
    """Media type and body, JSON of even steps and safetensors of odd ones."""
    sent, envelope = sequences(key), {"step": key.step, "shard": key.shard, "shards": SHARDS}
    columns: dict[str, list[float]] = {name: [x for s in sent for x in s.logprobs[name]] for name in COLUMNS}
    advantages = [s.advantage for s in sent]
    lengths = [len(s.mask) for s in sent]
    if key.step % 2 == 0:
        document = {**envelope, **columns, "advantages": advantages, "lengths": lengths}
        return "application/json", json.dumps(document).encode()
    arrays = {name: np.array(values, np.float32) for name, values in (*columns.items(), ("advantages", advantages))}
    return frame.MEDIA_TYPE, frame_body(envelope, **arrays, lengths=np.array(lengths))


def digest(key: Key) -> bytes:
    """The digest of what is sent under a key."""
    media_type, sent = body(key)
    message = decode_batch(sent, media_type, LIMITS)
    assert isinstance(message, Message)
    return content_digest(message)
