"""Judges a shard before any transaction: its integers must fit the database, its sums must stay finite when merged.

Knows what the tables and the stored form can hold, and which array to blame for a sum. A shard that passes cannot fail
the transaction that it shares with others.
"""

from collections.abc import Iterator, Mapping

from offpolicy_monitor.errors import Refusal
from offpolicy_monitor.store.paging import LARGEST_INTEGER
from offpolicy_monitor.store.records import ShardRecord
from offpolicy_monitor.summary import stored
from offpolicy_monitor.summary.step import StepSummary

INTEGERS = ("attempt", "step", "minibatch", "shard")
# A merge adds up the sums of its shards: 1e18 of these, more than there can be, still fit a 64-bit float.
LARGEST_SUM = 1e290
# The array that a figure was summed from, where that is not the log-probs of the current policy.
SUMMED_FROM: Mapping[str, str] = {
    "reward": "rewards",
    "entropy": "entropy",
    "lag": "policy_versions",
    "lag_max": "policy_versions",
    "advantage_mass": "advantages",
    "masked_advantage_mass": "advantages",
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
    for name, value in _sums(record.summary):
        # Written so that NaN is refused too.
        if not abs(value) <= LARGEST_SUM:
            message = f"the sum {name!r} over this batch is beyond {LARGEST_SUM:g}, too large to be merged with others"
            return Refusal.of_field(422, "figures-overflow", SUMMED_FROM.get(name, "logprobs"), message)
    return stored.to_bytes(record.summary)


def _sums(summary: StepSummary) -> Iterator[tuple[str, float]]:
    """Every sum of a summary by its name."""
    yield from summary.batch.items()
    yield from summary.cross.items()
    for gap in summary.gaps.values():
        yield from gap.sums.items()
    for method in summary.methods.values():
        yield from method.sums.items()
