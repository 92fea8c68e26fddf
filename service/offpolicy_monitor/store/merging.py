"""Merges the stored shards of gradient steps, in shard order, so that a step's figures never depend on arrival.

A step that counts is merged when it is written; one that is still open, when it is read.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from sqlalchemy import Connection, and_, select

from offpolicy_monitor.store.ledger import GradientStep
from offpolicy_monitor.store.records import ShardRecord
from offpolicy_monitor.store.tables import shards
from offpolicy_monitor.summary import stored
from offpolicy_monitor.summary.step import StepSummary, merge_all

Place = tuple[str, int, int, int]


def merge_stored(connection: Connection, run_id: int, step: int, minibatch: int, attempt: int) -> StepSummary:
    """The merge of every shard stored of one gradient step, in shard order."""
    of_step = and_(
        shards.c.run_id == run_id,
        shards.c.step == step,
        shards.c.minibatch == minibatch,
        shards.c.attempt == attempt,
    )
    blobs = connection.execute(select(shards.c.summary).where(of_step).order_by(shards.c.shard)).scalars()
    return merge_all(map(stored.from_bytes, blobs))


def merge_steps(
    connection: Connection,
    run_ids: Mapping[str, int],
    steps: Sequence[GradientStep],
    records: Iterable[ShardRecord] = (),
) -> list[StepSummary]:
    """The merge of each step; a step whose shards are all among `records` is not read back."""
    arrived: dict[Place, list[ShardRecord]] = defaultdict(list)
    for record in records:
        key = record.key
        arrived[key.run, key.step, key.minibatch, key.attempt].append(record)
    merged = []
    for step in steps:
        here = arrived[step.run, step.step, step.minibatch, step.attempt]
        if len(here) == step.received:
            here.sort(key=lambda record: record.key.shard)
            merged.append(merge_all(record.summary for record in here))
        else:
            merged.append(merge_stored(connection, run_ids[step.run], step.step, step.minibatch, step.attempt))
    return merged
