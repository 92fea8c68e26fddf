"""Judges a shard before any transaction: its integers must fit the database, its sums must stay finite when merged.

Knows what the tables and the stored form can hold, and which array to blame for a sum. A shard that passes cannot fail
the transaction that it shares with others, nor the merge of its step.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import Final

import numpy as np

from offpolicy_monitor.errors import Refusal
from offpolicy_monitor.store.paging import LARGEST_INTEGER
from offpolicy_monitor.store.records import ShardRecord
from offpolicy_monitor.summary import stored
from offpolicy_monitor.summary.step import StepSummary
from offpolicy_monitor.summary.sums import LARGEST_COUNT, LARGEST_SUM, Sums

INTEGERS = ("attempt", "step", "minibatch", "shard")
#: The array that a figure was summed from, where that is not the log-probs of the current policy.
SUMMED_FROM: Final[Mapping[str, str]] = {
    "reward": "rewards",
    "entropy": "entropy",
    "lag": "policy_versions",
    "lag_max": "policy_versions",
    "advantage_mass": "advantages",
    "masked_advantage_mass": "advantages",
}
#: The same for all of a table, by the first or the last part of its name.
KINDS_FROM: Final[Mapping[str, str]] = {
    "versions": "policy_versions",
    "advantage": "advantages",
    "gradient": "advantages",
    "mass": "advantages",
    "routing": "experts",
}


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
    return _overflow(record.summary) or stored.to_bytes(record.summary)


def prepared(record: ShardRecord) -> ShardRecord:
    """The record with its summary's stored form, so that no transaction waits for that; raises its Refusal."""
    blob = prepare(record)
    if isinstance(blob, Refusal):
        raise blob
    return replace(record, blob=blob)


def _overflow(summary: StepSummary) -> Refusal | None:
    """Refusal 422 for the first count or sum that is too large to be merged with others, if any."""
    records = list(_records(summary))
    # Some thousand numbers at once: a loop over them costs ten times as much. Written so that NaN is found too.
    numbers = np.fromiter(chain.from_iterable(record.values() for _, record in records), np.float64)
    if bool((np.abs(numbers) <= LARGEST_COUNT).all()):
        return None
    for path, record in records:
        for name, value in record.items():
            limit = LARGEST_COUNT if isinstance(value, int) else LARGEST_SUM
            if not abs(value) <= limit:
                return _too_large(path, name, limit)
    return None


def _records(summary: StepSummary) -> Iterator[tuple[str, Sums]]:
    """Every record of counts and sums by its path. Histograms count what `tokens` and `sequences` count."""
    yield "batch", summary.batch
    yield "cross", summary.cross
    yield from ((f"gaps.{name}", gap.sums) for name, gap in summary.gaps.items())
    yield from ((f"methods.{name}", method.sums) for name, method in summary.methods.items())
    yield from summary.tables.items()


def _too_large(path: str, name: str, limit: float) -> Refusal:
    kinds = [KINDS_FROM[part] for part in (path.partition("/")[0], path.rpartition("/")[2]) if part in KINDS_FROM]
    field = SUMMED_FROM.get(name) or (kinds[0] if kinds else "logprobs")
    message = f"the sum {name!r} of {path[:64]} over this batch is beyond {limit:g}, too large to be merged with others"
    return Refusal.of_field(422, "figures-overflow", field, message)
