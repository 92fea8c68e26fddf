"""Makes old steps small: their shards' summaries go once no late shard is taken, then theirs are merged into blocks.

A settled step keeps its row, its figures and its headline figures, its shards their keys and digests. Of the newest
KEPT steps of a run each keeps its own summary; of the older ones so many as are wanted share a block, and their figures
go without breakdowns and signature. Done in small portions; each leaves everything right, so a crash may come between
any two.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, groupby
from typing import Any, Final

from sqlalchemy import Connection, bindparam, func, insert, select, tuple_, update

from offpolicy_monitor.store.rows.codec import pack
from offpolicy_monitor.store.rows.derived import Figures
from offpolicy_monitor.store.rows.held import hold_ids
from offpolicy_monitor.store.rows.tables import ALONE, UNSETTLED, blocks, shards, steps
from offpolicy_monitor.summary import stored
from offpolicy_monitor.summary.step import merge_all
from offpolicy_monitor.summary.tables import KINDS
from offpolicy_monitor.summary.tables.worst import Worst

#: Shards whose summaries go in one transaction.
PORTION: Final = 300
#: Training steps of a run that keep a summary of their own: as many as recommendations and diagnosis look back on.
KEPT: Final = 50
#: Blocks of one run that are made from one look at it.
BLOCKS: Final = 20
#: What the figures of a step lose with its summary; `GET .../steps/{step}` answers them empty.
LOST: Final = frozenset(kind.name for kind in KINDS if kind.lost)
LEVEL: Final = 12
_PLACE: Final = (steps.c.run_id, steps.c.step, steps.c.minibatch, steps.c.attempt)
_SHARD_PLACE: Final = (shards.c.run_id, shards.c.step, shards.c.minibatch, shards.c.attempt)


@dataclass(frozen=True)
class Member:
    """A row of a step that goes into a block; `summary` is None unless readers of the step are shown it."""

    id: int
    step: int
    summary: bytes | None
    figures: Figures
    last_received_at: float


@dataclass(frozen=True)
class Block:
    """Steps with their merge, and the figures that each of their rows keeps."""

    run: int
    members: Sequence[Member]
    steps: Sequence[int]
    summary: bytes
    figures: Sequence[bytes]


def settle_portion(connection: Connection, before: float) -> int:
    """Drop summaries of shards of steps whose last shard came before then (unix seconds); answers of how many steps."""
    due = (steps.c.last_received_at < before, steps.c.merged == steps.c.received, UNSETTLED)
    columns = (steps.c.id, *_PLACE, steps.c.received)
    found = connection.execute(select(*columns).where(*due).order_by(steps.c.last_received_at).limit(PORTION)).all()
    counts = accumulate(row.received for row in found)
    found = [row for row, count in zip(found, counts, strict=True) if count <= PORTION] or found[:1]
    # Whoever adds a shard to a step holds its run: once this does too, nothing can change any more.
    hold_ids(connection, {row.run_id for row in found})
    rows = connection.execute(select(*columns).where(*due, steps.c.id.in_([row.id for row in found]))).all()
    if rows:
        of_steps = tuple_(*_SHARD_PLACE).in_([tuple(row[1:5]) for row in rows])
        connection.execute(update(shards).where(of_steps).values(summary=b""))
        connection.execute(update(steps).where(steps.c.id.in_([row.id for row in rows])).values(block=0))
    return len(rows)


def read_runs(connection: Connection, count: int) -> Sequence[int]:
    """Runs with more settled steps than are kept alone, enough for a block of so many steps."""
    query = select(steps.c.run_id).where(ALONE).group_by(steps.c.run_id)
    query = query.having(func.count(steps.c.step.distinct()) >= count)
    found = connection.execute(query).scalars().all()
    return [run for run in found if len(_wanted(connection, run, count)) >= count]


def read_members(connection: Connection, run: int, count: int) -> list[list[Member]]:
    """The rows of the next blocks of so many steps of a run, ascending; none where there are too few."""
    wanted = _wanted(connection, run, count)[: BLOCKS * count]
    groups = [wanted[start : start + count] for start in range(0, len(wanted) - count + 1, count)]
    return [_members(connection, run, group) for group in groups]


def make_block(run: int, members: Sequence[Member]) -> Block:
    """Merge the summaries of steps, in their order, but for their worst sequences, which are of one step or of none."""
    standing = [(member.step, member.summary) for member in members if member.summary is not None]
    merged = merge_all(stored.from_bytes(summary) for _, summary in standing)
    merged = replace(merged, worst=Worst())
    figures = [pack(_without_lost(member.figures.read()), LEVEL) for member in members]
    return Block(run, members, [step for step, _ in standing], stored.to_bytes(merged), figures)


def keep_block(connection: Connection, block: Block) -> bool:
    """Put the block instead of its members' summaries; False where one of them has gone."""
    if not hold_ids(connection, [block.run]):
        return False
    ids = [member.id for member in block.members]
    alone = select(func.count()).select_from(steps).where(steps.c.id.in_(ids), steps.c.run_id == block.run, ALONE)
    if connection.execute(alone).scalar_one() != len(ids):
        return False
    latest = max(member.last_received_at for member in block.members)
    values = {"run_id": block.run, "step": block.steps[0], "last_step": block.steps[-1], "steps": len(block.steps)}
    query = insert(blocks).values(**values, last_received_at=latest, summary=block.summary).returning(blocks.c.id)
    made = connection.execute(query).scalar_one()
    statement = update(steps).where(steps.c.id == bindparam("key"))
    rows = [{"key": key, "figures": packed} for key, packed in zip(ids, block.figures, strict=True)]
    connection.execute(statement.values(summary=None, block=made, figures=bindparam("figures")), rows)
    return True


def _without_lost(figures: dict[str, Any]) -> dict[str, Any]:
    return {name: {} if name in LOST else value for name, value in figures.items()}


def _wanted(connection: Connection, run: int, count: int) -> Sequence[int]:
    """Training steps that are settled and not among the newest ones, ascending."""
    newest = select(steps.c.step).where(steps.c.run_id == run, ~steps.c.superseded).distinct()
    beyond = newest.order_by(steps.c.step.desc()).limit(1).offset(KEPT - 1).scalar_subquery()
    query = select(steps.c.step).where(steps.c.run_id == run, ALONE, ~steps.c.superseded, steps.c.step < beyond)
    return connection.execute(query.distinct().order_by(steps.c.step).limit(BLOCKS * count)).scalars().all()


def _members(connection: Connection, run: int, group: Sequence[int]) -> list[Member]:
    columns = (steps.c.id, steps.c.step, steps.c.last_received_at, steps.c.summary, steps.c.figures)
    query = select(*columns).where(steps.c.run_id == run, ALONE, steps.c.step.in_(group))
    rows = connection.execute(query.order_by(steps.c.step, steps.c.superseded.desc(), steps.c.minibatch)).all()
    members = []
    for _, of_step in groupby(rows, key=lambda row: row.step):
        *others, last = of_step
        members += [_member(row, None) for row in others]
        members.append(_member(last, last.summary))
    return members


def _member(row: Any, summary: bytes | None) -> Member:
    return Member(row.id, row.step, summary, Figures(row.figures, row.summary), row.last_received_at)
