"""Makes steps thin that are older still: they keep their headline figures, and ten of their blocks become one.

Their other figures go, the keys and digests of their shards, and what they were judged by where no rule looks back on
it any more. Done in small portions; each leaves everything right, so a crash may come between any two.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import ColumnElement, Connection, Select, delete, func, insert, select, tuple_, update

from offpolicy_monitor.store.rows.held import hold_ids
from offpolicy_monitor.store.rows.histories import looked_back_on
from offpolicy_monitor.store.rows.records import StepKey
from offpolicy_monitor.store.rows.tables import THICK, blocks, judged_steps, shards, steps
from offpolicy_monitor.summary import stored
from offpolicy_monitor.summary.step import merge_all

#: Blocks that become one.
MERGED: Final = 10
#: Shards that go in one transaction.
PORTION: Final = 300


@dataclass(frozen=True)
class Thick:
    """Blocks of a run that are to become one: their ids and summaries, and the gradient steps in them."""

    run: int
    ids: Sequence[int]
    first: int
    last: int
    steps: int
    keys: Sequence[StepKey]
    summaries: Sequence[bytes]


def read_runs(connection: Connection, before: float) -> Sequence[int]:
    """Runs that have enough thick blocks whose last shard came before then (unix seconds)."""
    query = select(blocks.c.run_id).where(THICK, blocks.c.last_received_at < before)
    return connection.execute(query.group_by(blocks.c.run_id).having(func.count() >= MERGED)).scalars().all()


def read_blocks(connection: Connection, run: int, before: float) -> Thick | None:
    """The oldest blocks of a run that are to become one; None where they are too few."""
    due = (blocks.c.run_id == run, THICK, blocks.c.last_received_at < before)
    found = connection.execute(select(blocks).where(*due).order_by(blocks.c.step, blocks.c.id).limit(MERGED)).all()
    if len(found) < MERGED:
        return None
    ids, first, last = [row.id for row in found], found[0].step, max(row.last_step for row in found)
    key = (steps.c.run_id, steps.c.step, steps.c.minibatch, steps.c.attempt)
    keys = [tuple(row) for row in connection.execute(select(*key).where(*_members(run, first, last, ids)))]
    return Thick(run, ids, first, last, sum(row.steps for row in found), keys, [row.summary for row in found])


def merge(thick: Thick) -> bytes:
    """The stored merge of the blocks, in the order of their steps."""
    return stored.to_bytes(merge_all(map(stored.from_bytes, thick.summaries)))


def drop_shards(connection: Connection, thick: Thick) -> int:
    """Drop some of the shards of the blocks' steps, which are recognised no more; answers how many."""
    hold_ids(connection, [thick.run])
    key = tuple(shards.primary_key)
    of_steps = tuple_(shards.c.run_id, shards.c.step, shards.c.minibatch, shards.c.attempt).in_(thick.keys)
    found = connection.execute(select(*key).where(of_steps).limit(PORTION)).all()
    if found:
        connection.execute(delete(shards).where(tuple_(*key).in_([tuple(row) for row in found])))
    return len(found)


def keep(connection: Connection, thick: Thick, summary: bytes) -> bool:
    """Put one block with this summary instead of several, whose steps go thin; False where one of them is gone."""
    if not hold_ids(connection, [thick.run]):
        return False
    there = blocks.c.id.in_(thick.ids)
    if connection.execute(select(func.count()).select_from(blocks).where(there)).scalar_one() < len(thick.ids):
        return False
    members = _members(thick.run, thick.first, thick.last, thick.ids)
    _forget_judged(connection, thick.run, select(steps.c.step).where(*members, ~steps.c.superseded))
    values = {"run_id": thick.run, "step": thick.first, "last_step": thick.last, "steps": thick.steps}
    made = connection.execute(insert(blocks).values(**values, summary=summary).returning(blocks.c.id))
    connection.execute(update(steps).where(*members).values(block=made.scalar_one(), figures=None))
    connection.execute(delete(blocks).where(there))
    return True


def _forget_judged(connection: Connection, run: int, of_steps: Select[int]) -> None:
    """Drop what steps were judged by, but for those that rules look back on."""
    idle = judged_steps.c.step.in_(of_steps), judged_steps.c.step.not_in(looked_back_on(connection, run))
    connection.execute(delete(judged_steps).where(judged_steps.c.run_id == run, *idle))


def _members(run: int, first: int, last: int, ids: Sequence[int]) -> list[ColumnElement[bool]]:
    """What selects the gradient steps of blocks, superseded ones too; the range is what an index has."""
    return [steps.c.run_id == run, steps.c.step.between(first, last), steps.c.block.in_(ids)]
