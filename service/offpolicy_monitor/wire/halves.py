"""Halves: the two posts of one shard, joined into the message that a single post would have been.

Knows what the later half may leave out (lengths, mask, labels, sequence ids) and what must agree. Where first halves
are kept, and for how long, is not known here.
"""

from dataclasses import replace

import numpy as np

from offpolicy_monitor.batch import Array, RaggedBatch
from offpolicy_monitor.wire.arrays import invalid
from offpolicy_monitor.wire.assemble import assemble, check, float_dtype, read_mask
from offpolicy_monitor.wire.layout import Layout, read_lengths
from offpolicy_monitor.wire.limits import Limits
from offpolicy_monitor.wire.message import LaterHalf, Message
from offpolicy_monitor.wire.schema import Envelope


def join(first: Message, later: LaterHalf, limits: Limits) -> Message:
    """The whole message: the envelope of the later half over the columns of both.

    Labels are those of both; sequence ids and all arrays that the later half lacks are those of the first. Raises
    Refusal 422 where the later half has other positions, lengths or mask than the first.
    """
    envelope = _envelope(first.envelope, later.envelope)
    lengths = read_lengths(later.arrays, limits)
    if lengths is not None and not np.array_equal(lengths, first.batch.lengths):
        raise invalid("lengths", "differ from those of the first half of this rollout")
    layout = Layout.known(later.arrays, first.batch.lengths)
    mask, repeated = _mask(first.batch), read_mask(later.arrays, layout)
    if repeated is not None and not np.array_equal(repeated, np.ones(len(repeated), bool) if mask is None else mask):
        raise invalid("mask", "differs from that of the first half of this rollout")
    return Message(envelope, _merged(first.batch, assemble(later.arrays, layout, mask, envelope.sequence_ids)))


def _envelope(first: Envelope, later: Envelope) -> Envelope:
    ids = first.sequence_ids if later.sequence_ids is None else later.sequence_ids
    return later.model_copy(update={"labels": first.labels | later.labels, "sequence_ids": ids})


def _mask(batch: RaggedBatch) -> Array | None:
    """The mask [P] bool that a batch was packed with."""
    if batch.positions is None:
        return None
    mask = np.zeros(int(batch.lengths.sum()), np.bool_)
    mask[batch.positions] = True
    return mask


def _merged(first: RaggedBatch, later: RaggedBatch) -> RaggedBatch:
    dtypes = {**first.dtypes, **later.dtypes}
    dtype = float_dtype(dtypes)
    columns = {
        name: column.astype(dtype, copy=False) if column.dtype.kind == "f" else column
        for name, column in {**first.columns, **later.columns}.items()
    }
    per_token = (first.per_token - later.columns.keys()) | later.per_token
    merged = replace(first, columns=columns, per_token=per_token, sequence_ids=later.sequence_ids, dtypes=dtypes)
    check(merged)
    return merged
