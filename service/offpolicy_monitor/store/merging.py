"""Merges the stored shards of gradient steps, in shard order, so that a step's figures never depend on arrival.

A merge takes milliseconds a shard, and the one writer must not be held for long: in the transaction that stores them
only few shards are merged. A larger step is merged by whoever asks for it outside (store.finishing). A step that is
still open is merged when it is read.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from sqlalchemy import Connection, and_, select, tuple_
from sqlalchemy.exc import SQLAlchemyError

from offpolicy_monitor.store.derived import for_headline
from offpolicy_monitor.store.ledger import GradientStep
from offpolicy_monitor.store.records import Place, ShardRecord
from offpolicy_monitor.store.tables import shards, steps
from offpolicy_monitor.summary import stored
from offpolicy_monitor.summary.step import StepSummary, merge_all

#: What one transaction may merge, in shards; a shard that must be read back takes as long as four that are at hand.
MOST_AT_ONCE: Final = 48
READ_BACK: Final = 4

#: Told of a step that cannot be merged or kept, and why.
Failed = Callable[[GradientStep, Exception], None]


@dataclass(frozen=True)
class Merged:
    """A step's merge, and what is kept of it: of how many shards it is, its stored form."""

    merge: StepSummary
    count: int
    summary: bytes

    @classmethod
    def of(cls, summary: StepSummary, count: int, blob: bytes | None = None) -> "Merged":
        """`blob` is the summary's stored form, where it is there already."""
        return cls(summary, count, stored.to_bytes(summary) if blob is None else blob)

    @cached_property
    def figures(self) -> dict[str, Any]:
        """Figures among which all headline figures are; computed once."""
        return for_headline(self.merge)


def merge_blobs(blobs: Sequence[bytes]) -> Merged:
    """The merge of shards in their stored form, given in shard order."""
    summary = merge_all(map(stored.from_bytes, blobs))
    return Merged.of(summary, len(blobs), blobs[0] if len(blobs) == 1 else None)


def merge_stored(connection: Connection, run_id: int, step: int, minibatch: int, attempt: int) -> StepSummary:
    """The merge of every shard stored of one gradient step, in shard order."""
    return merge_all(map(stored.from_bytes, read_blobs(connection, (run_id, step, minibatch, attempt))))


def read_blobs(connection: Connection, place: Place) -> Sequence[bytes]:
    """The stored form of every shard of one gradient step, in shard order; nothing where the step is gone."""
    run_id, step, minibatch, attempt = place
    of_step = and_(
        shards.c.run_id == run_id,
        shards.c.step == step,
        shards.c.minibatch == minibatch,
        shards.c.attempt == attempt,
    )
    blobs = connection.execute(select(shards.c.summary).where(of_step).order_by(shards.c.shard)).scalars().all()
    if blobs != [b""]:
        return blobs
    # The one shard of a step is not stored twice.
    of_step = tuple_(steps.c.run_id, steps.c.step, steps.c.minibatch, steps.c.attempt) == place
    return connection.execute(select(steps.c.summary).where(of_step)).scalars().all()


def merge_at_once(
    connection: Connection,
    run_ids: Mapping[str, int],
    steps: Iterable[GradientStep],
    arrived: Sequence[tuple[ShardRecord, bytes]],
    failed: Failed,
) -> dict[int, Merged]:
    """The merges of steps, by their identity: of as many as this transaction has time for.

    `arrived` are the shards of this group with their stored forms: a step that has no others is not read back. One
    that cannot be merged is told to `failed` and left out.
    """
    here: dict[tuple[str, int, int, int], list[tuple[ShardRecord, bytes]]] = defaultdict(list)
    for record, blob in arrived:
        here[record.key.run, record.key.step, record.key.minibatch, record.key.attempt].append((record, blob))
    merged, left = {}, MOST_AT_ONCE
    for step in steps:
        of_step = here[step.run, step.step, step.minibatch, step.attempt]
        read_back = len(of_step) < step.received
        cost = READ_BACK * step.received if read_back else step.received - 1
        if cost > left:
            continue
        left -= cost
        try:
            if read_back:
                place = (run_ids[step.run], step.step, step.minibatch, step.attempt)
                merged[id(step)] = merge_blobs(read_blobs(connection, place))
            else:
                merged[id(step)] = _merge_arrived(of_step)
        except SQLAlchemyError:
            raise
        except Exception as error:
            failed(step, error)
    return merged


def _merge_arrived(of_step: list[tuple[ShardRecord, bytes]]) -> Merged:
    of_step.sort(key=lambda shard: shard[0].key.shard)
    summary = merge_all(record.summary for record, _ in of_step)
    return Merged.of(summary, len(of_step), of_step[0][1] if len(of_step) == 1 else None)
