"""Judges a shard before any transaction: its integers must fit the database, its sums must stay finite when merged.

Knows what the tables and the stored form can hold. A shard that passes cannot fail the transaction that it shares with
others, nor the merge of its step.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from offpolicy_monitor.errors import Refusal
from offpolicy_monitor.store.rows import narrow
from offpolicy_monitor.store.rows.cursors import LARGEST_INTEGER
from offpolicy_monitor.store.rows.records import ShardRecord
from offpolicy_monitor.summary import stored
from offpolicy_monitor.summary.arrays import NOTHING, Array, Arrays
from offpolicy_monitor.summary.scheme import COUNTS, Scheme
from offpolicy_monitor.summary.sums import LARGEST_COUNT, LARGEST_SUM

INTEGERS = ("attempt", "step", "minibatch", "shard")


def prepare(record: ShardRecord) -> bytes | Refusal:
    """The summary in its stored form, or why this record cannot be stored."""
    for name in INTEGERS:
        if not 0 <= getattr(record.key, name) <= LARGEST_INTEGER:
            return Refusal.of_field(422, "out-of-range", name, f"must be between 0 and {LARGEST_INTEGER}")
    for name in ("policy_version", "minibatches"):
        if abs(getattr(record, name) or 0) > LARGEST_INTEGER:
            return Refusal.of_field(422, "out-of-range", name, f"must not be beyond {LARGEST_INTEGER}")
    if not record.key.shard < record.shards <= LARGEST_INTEGER:
        return Refusal.of_field(422, "out-of-range", "shards", f"must be more than shard, which is {record.key.shard}")
    return _overflow(record.summary.arrays) or stored.to_bytes(record.summary)


def prepared(record: ShardRecord) -> ShardRecord:
    """The record with its summary's stored form, so that no transaction waits for that; raises its Refusal.

    Of a shard that is its whole step what headline figures are read off is made too: the step is saved with them.
    """
    blob = prepare(record)
    if isinstance(blob, Refusal):
        raise blob
    if record.shards == 1:
        narrow.ready(record.summary)
    return replace(record, blob=blob)


def headline_of(record: ShardRecord) -> Mapping[str, float] | None:
    """The headline figures that `prepared` made, None where it made none."""
    return narrow.ready(record.summary) if record.shards == 1 else None


def prepared_elsewhere(record: ShardRecord, blob: bytes, headline: Mapping[str, float] | None) -> ShardRecord:
    """What `prepared` gives, of what another process made of an equal record."""
    if headline is not None:
        narrow.take(record.summary, headline)
    return replace(record, blob=blob)


def _overflow(arrays: Arrays) -> Refusal | None:
    """Refusal 422 for the first count or sum that is too large to be merged with others, if any. NaN is too large."""
    where, filled = arrays.filled
    if _within(filled, LARGEST_COUNT) and _within(arrays.every_fraction, LARGEST_SUM):
        return None
    for section, values in enumerate((filled, *arrays.fractions)):
        limit = LARGEST_COUNT if section == COUNTS else LARGEST_SUM
        # Written so that NaN is found too; extremes are infinite where nothing was counted.
        too_large = np.flatnonzero(~(np.abs(values) <= limit) & (values != NOTHING[section]))
        if len(too_large):
            first = int((where[too_large] if section == COUNTS else too_large)[0])
            return _too_large(arrays.scheme, arrays.scheme.name_at(section, first), limit)
    return None


def _within(values: Array, limit: float) -> bool:
    """Whether no number is beyond the limit, nor NaN, which both ends of the numbers would be."""
    return bool(values.min(initial=0) >= -limit and values.max(initial=0) <= limit)


def _too_large(scheme: Scheme, name: str, limit: float) -> Refusal:
    key = scheme.key_of(name)
    assert key is not None
    message = f"the sum {name[:64]!r} over this batch is beyond {limit:g}, too large to be merged with others"
    return Refusal.of_field(422, "figures-overflow", scheme.tables[key].summed_from, message)
