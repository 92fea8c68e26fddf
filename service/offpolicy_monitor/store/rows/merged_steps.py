"""Merges the stored shards of gradient steps, in shard order, so that a step's figures never depend on arrival.

The one writer must not be held for long, so in the transaction that stores them only so many shards are merged; those
that this process stored lately are at hand, others are read back. A larger step is merged by whoever asks for it,
outside of any transaction (store.write.finish). A step that is still open is merged when it is read.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from sqlalchemy import Connection, and_, bindparam, select, tuple_
from sqlalchemy.exc import SQLAlchemyError

from offpolicy_monitor.figures import at_each, with_correction
from offpolicy_monitor.store.rows import narrow
from offpolicy_monitor.store.rows.gradient_steps import GradientStep
from offpolicy_monitor.store.rows.readable import readable
from offpolicy_monitor.store.rows.recent import Recent, Shards
from offpolicy_monitor.store.rows.records import ShardRecord, StepKey
from offpolicy_monitor.store.rows.statement import Statement
from offpolicy_monitor.store.rows.tables import shards, steps
from offpolicy_monitor.store.rows.wanted import figures_for
from offpolicy_monitor.summary import stored
from offpolicy_monitor.summary.step import StepSummary, merge_all

#: What one transaction may merge, in shards; a shard that must be read back takes as long as four that are at hand.
MOST_AT_ONCE: Final = 48
READ_BACK: Final = 4

_SHARDS_OF: Final = Statement(
    select(shards.c.shard, shards.c.digest, shards.c.received_at)
    .where(shards.c.run_id == bindparam("run", required=True), shards.c.step == bindparam("at", required=True))
    .where(shards.c.minibatch == bindparam("minibatch", required=True))
    .where(shards.c.attempt == bindparam("attempt", required=True))
    .order_by(shards.c.shard)
)

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

    def with_figures(self) -> "Merged":
        """Itself, its figures computed now: where nobody waits for it, and not in the transaction that keeps it."""
        narrow.ready(self.merge)
        return self

    def headline(self, correction: str | None) -> dict[str, float]:
        """Its headline figures by path, computed once; `correction` names the row in use."""
        if correction not in self._headlines:
            self._headlines[correction] = narrow.headline_of(self.merge, correction)
        return self._headlines[correction]

    @cached_property
    def _headlines(self) -> dict[str | None, dict[str, float]]:
        return {}

    def at_each(self, paths: Collection[str], correction: str | None) -> dict[str, float]:
        """The figures at those of the paths that have one."""
        if narrow.covers(tuple(paths)):
            found = self.headline(correction)
            return {path: found[path] for path in paths if path in found}
        return at_each(with_correction(figures_for(self.merge, paths), correction), paths)


#: A shard, or the merge of some that follow each other: the summary, where it is at hand, or its stored form.
Part = StepSummary | bytes


def merge_parts(parts: Sequence[Part], count: int) -> Merged:
    """The merge of so many shards, given in shard order."""
    summary = merge_all(stored.from_bytes(part) if isinstance(part, bytes) else part for part in parts)
    alone = parts[0] if len(parts) == 1 else None
    return Merged.of(summary, count, alone if isinstance(alone, bytes) else None)


def read_parts(connection: Connection, key: StepKey, recent: Recent) -> tuple[Sequence[Part], int]:
    """What is stored of one gradient step, in shard order, and of how many shards; nothing where the step is gone."""
    found = shards_of(connection, key)
    return recent.parts(key, found) or read_blobs(connection, key), len(found)


def shards_of(connection: Connection, key: StepKey) -> Shards:
    """Every shard stored of one gradient step."""
    rows = _SHARDS_OF.rows(connection, **dict(zip(("run", "at", "minibatch", "attempt"), key, strict=True)))
    return [(shard, (digest, received_at)) for shard, digest, received_at in rows]


def merge_stored(connection: Connection, run_id: int, step: int, minibatch: int, attempt: int) -> StepSummary | None:
    """The merge of every shard stored of one gradient step that can be read, in shard order; None where none can."""
    blobs = read_blobs(connection, (run_id, step, minibatch, attempt))
    parts = [part for blob in blobs if (part := readable(stored.from_bytes, blob, step)) is not None]
    return merge_all(parts) if parts else None


def read_blobs(connection: Connection, key: StepKey) -> Sequence[bytes]:
    """The stored form of every shard of one gradient step, in shard order; nothing where the step is gone."""
    run_id, step, minibatch, attempt = key
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
    of_step = tuple_(steps.c.run_id, steps.c.step, steps.c.minibatch, steps.c.attempt) == key
    return connection.execute(select(steps.c.summary).where(of_step)).scalars().all()


def merge_at_once(
    connection: Connection,
    run_ids: Mapping[str, int],
    steps: Iterable[GradientStep],
    arrived: Mapping[tuple[str, int, int, int], Sequence[tuple[ShardRecord, bytes]]],
    recent: Recent,
    stored_of: Callable[[GradientStep], Shards],
    failed: Failed,
) -> dict[int, Merged]:
    """The merges of steps, by their identity: of as many as this transaction has time for.

    `arrived` are the shards of this group with their stored forms, in shard order, by the (run, step, minibatch,
    attempt) of their steps; what came before, of which `stored_of` tells, is read back unless it is recent.
    One that cannot be merged is told to `failed` and left out.
    """
    merged, left = {}, MOST_AT_ONCE
    for step in steps:
        of_step = arrived.get((step.run, step.step, step.minibatch, step.attempt), ())
        key = (run_ids[step.run], step.step, step.minibatch, step.attempt)
        ready = [record.summary for record, _ in of_step]
        if len(ready) < step.received:
            ready = recent.parts(key, stored_of(step))
        cost = step.received - 1 if ready else READ_BACK * step.received
        if cost > left:
            continue
        left -= cost
        try:
            if len(of_step) == step.received == 1:
                merged[id(step)] = Merged.of(ready[0], 1, of_step[0][1])
            else:
                merged[id(step)] = merge_parts(ready or read_blobs(connection, key), step.received)
        except SQLAlchemyError:
            raise
        except Exception as error:
            failed(step, error)
    return merged
