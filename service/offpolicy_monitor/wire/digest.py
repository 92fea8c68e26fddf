"""Digest: sixteen bytes that tell whether two messages say the same.

Taken over the decoded content, so that layout, media type and encoding do not matter, and neither does what lies at
positions that do not count. The key of a shard is not in it: the digest is compared among posts under one key. Nor is
`rollout`, so that a shard sent in two halves equals the same shard sent whole.
"""

from math import isnan
from operator import itemgetter

import numpy as np
import orjson
import xxhash

from offpolicy_monitor.batch import Array, RaggedBatch
from offpolicy_monitor.wire.message import Message, Reduced
from offpolicy_monitor.wire.schema import Envelope

# `rollout` says where to look for the other half of a shard: it is part of how the content came, not of the content.
CONTENT = Envelope.model_fields.keys() - {"step", "attempt", "minibatch", "shard", "rollout"}
# A block is searched for NaN and hashed while it is still in the cache.
BLOCK = 1 << 17


def content_digest(message: Message) -> bytes:
    """The xxh3_128 of a message's content.

    In it: the envelope but for the shard's key and rollout, the wire dtypes of the log-probs, which tokens each
    sequence has and at which of its positions, and every column. Any NaN is the same NaN.
    """
    batch = message.batch
    # `a_token` is the name that the digests in databases were made with.
    digest = _begun(message.envelope, dtypes=dict(batch.dtypes), a_token=sorted(batch.per_token))
    _add(digest, "offsets", batch.offsets)
    for name, values in zip(("jumping", "jumps"), _jumps(batch), strict=True):
        _add(digest, name, values)
    # A signalling NaN makes a comparison an "invalid operation", of which numpy warns.
    with np.errstate(invalid="ignore"):
        for name, column in sorted(batch.columns.items(), key=itemgetter(0)):
            _add(digest, name, column.astype(np.uint16) if column.dtype == np.uint8 else column)
    return digest.digest()


def reduced_digest(message: Reduced) -> bytes:
    """The xxh3_128 of a reduced shard: its envelope as above, and its summary whatever it was compressed with."""
    digest = _begun(message.envelope, summary=True)
    for part in message.parts:
        digest.update(f"{len(part)}\n".encode())
        digest.update(part)
    return digest.digest()


def _begun(envelope: Envelope, **beside: object) -> "xxhash.xxh3_128":
    """A digest that has the envelope's content, and what stands beside it."""
    head = {name: getattr(envelope, name) for name in CONTENT}
    return xxhash.xxh3_128(orjson.dumps(head | beside, option=orjson.OPT_SORT_KEYS))


def _add(digest: "xxhash.xxh3_128", name: str, column: Array) -> None:
    """Hash a column with its name, dtype and shape, so that no two lists of columns spell the same bytes."""
    # JSON without a position cannot say how many layers there would have been.
    shape = column.shape if column.size else (0,)
    digest.update(f"{name} {column.dtype.str} {shape}\n".encode())
    if not column.size:
        return
    flat = np.ascontiguousarray(column).reshape(-1)
    if column.dtype.kind != "f":
        digest.update(flat.data)
        return
    for start in range(0, len(flat), BLOCK):
        block = flat[start : start + BLOCK]
        # The minimum is NaN if any value is, and costs a fraction of looking at each.
        if isnan(np.minimum.reduce(block)):
            block = np.where(np.isnan(block), block.dtype.type(np.nan), block)
        digest.update(block.data)


def _jumps(batch: RaggedBatch) -> tuple[Array, Array]:
    """Which tokens do not directly follow the one before (or do not begin their sequence), and by how far.

    Empty for sequences without holes in their mask, however much padding follows: so padded equals packed.
    """
    if batch.positions is None:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    steps = np.empty_like(batch.positions)
    np.subtract(batch.positions[1:], batch.positions[:-1], out=steps[1:])
    filled = np.flatnonzero(np.diff(batch.offsets))
    first_tokens = batch.offsets[filled]
    starts = (np.cumsum(batch.lengths) - batch.lengths)[filled]
    steps[first_tokens] = batch.positions[first_tokens] - starts + 1
    jumping = np.flatnonzero(steps != 1)
    return jumping, steps[jumping]
