"""Summaries of gradient steps, one or many at once; what was read lately is not decoded again.

A page asks for those of the same fifty or two hundred steps several times, and once more after each new step: nearly
all of them are the same. Every method takes the caller's connection.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, Select, func, select

from offpolicy_monitor.errors import Refusal
from offpolicy_monitor.store.rows.lately import Lately
from offpolicy_monitor.store.rows.merged_steps import merge_stored
from offpolicy_monitor.store.rows.readable import readable
from offpolicy_monitor.store.rows.runs import run_id
from offpolicy_monitor.store.rows.settled import Settled
from offpolicy_monitor.store.rows.steps import find, in_range, is_last_minibatch, spread
from offpolicy_monitor.store.rows.tables import OPEN, blocks, steps
from offpolicy_monitor.summary import stored
from offpolicy_monitor.summary.remembered import Remembering
from offpolicy_monitor.summary.step import StepSummary, merge_all

#: Earlier gradient steps that are read beside the last ones of some steps: a tenth of a second.
MOST_GRADIENT_STEPS: Final = 400
#: Bytes of decoded summaries that are kept: some three hundred of steps of one small shard.
MOST_BYTES: Final = 1 << 26
#: Ranges of which the summaries that were spread over them are kept, while their runs stand still.
SPREADS: Final = 2
#: Ranges of which the numbers of their steps are kept, 8 bytes each.
RANGES: Final = 4

_COLUMNS: Final = (steps.c.id, steps.c.step, steps.c.minibatch, steps.c.block, steps.c.summary)
Spread = tuple[list[tuple[int, int, StepSummary]], int]
Numbers = NDArray[np.int64]


class Summaries:
    """Reads them. Nobody may change what they hold. Safe to share between threads."""

    def __init__(self, settled: Settled) -> None:
        self._settled = settled
        self._decoded = Remembering(stored.from_bytes, _bytes, MOST_BYTES)
        self._spread = Lately[Spread](SPREADS)
        self._numbers = Lately[Numbers](RANGES)

    def one(
        self, connection: Connection, run: str, step: int | None, minibatch: int | None
    ) -> tuple[int, int, StepSummary]:
        """(step, minibatch, summary) of one gradient step, the latest one, or the last of `step`, if not named.

        The merge of what has arrived; Refusal 404 where there is none, 410 where an old step has none of its own any
        more, or what is stored of it cannot be read.
        """
        columns = (steps.c.run_id, steps.c.step, steps.c.minibatch, steps.c.attempt)
        row_id = find(connection, run, step, minibatch)
        query = select(*columns, steps.c.summary, steps.c.block).where(steps.c.id == row_id)
        *key, kept, block = connection.execute(query).one()
        if block:
            message = f"step {key[1]} shares its summary with others; OFFPOLICY_BLOCK_STEPS says how many steps do"
            raise Refusal(410, "step-merged", message)
        found = merge_stored(connection, *key) if kept is None else readable(self._decoded, kept, key[1])
        if found is None:
            message = (
                f"what is stored of step {key[1]} cannot be read: it is damaged, or a newer release has written it"
            )
            raise Refusal(410, "step-unreadable", message)
        return key[1], key[2], found

    def newest(
        self, connection: Connection, run: str, first: int | None, last: int | None, most: int
    ) -> list[tuple[int, int, StepSummary]]:
        """(step, minibatch, summary) of the newest `most` steps that count, ascending: of each its last one."""
        return self._of(connection, _newest(connection, run, first, last, most))

    def whole(
        self, connection: Connection, run: str, first: int | None, last: int | None, most: int
    ) -> list[tuple[int, StepSummary]]:
        """(step, summary) of the newest `most` steps that count, ascending: the merge of all their gradient steps.

        Of steps that share a summary, and beyond MOST_GRADIENT_STEPS, it is that of the last gradient step.
        """
        rows = _newest(connection, run, first, last, most)
        found = {step: [summary] for step, _, summary in self._of(connection, rows)}
        earlier = (
            select(steps.c.step, steps.c.summary)
            .where(*in_range(run_id(connection, run), min(found, default=0), max(found, default=0)))
            .where(steps.c.state != OPEN, steps.c.summary.is_not(None), steps.c.id.not_in([row.id for row in rows]))
            .order_by(steps.c.step.desc(), steps.c.minibatch.desc())
            .limit(MOST_GRADIENT_STEPS)
        )
        for step, summary in connection.execute(earlier):
            if step in found:
                found[step][:0] = self._read(step, summary)
        return [(step, merge_all(summaries)) for step, summaries in found.items()]

    def spread(self, connection: Connection, run: str, first: int | None, last: int | None, most: int) -> Spread:
        """As `newest`, but `most` steps spread evenly over the range, and how many there are in it."""

        def read(connection: Connection) -> Spread:
            there = self._steps_that_count(connection, run_id(connection, run), first, last)
            chosen = steps.c.step.in_(there[spread(range(len(there)), most)].tolist())
            rows = connection.execute(_counting(connection, run, first, last).where(chosen)).all()
            return self._of(connection, rows), len(there)

        return self._spread.read(connection, run_id(connection, run), (first, last, most), read)

    def count(self, connection: Connection, run: str, first: int | None, last: int | None) -> int:
        """How many steps count in the range."""
        return len(self._steps_that_count(connection, run_id(connection, run), first, last))

    def _steps_that_count(self, connection: Connection, run: int, first: int | None, last: int | None) -> Numbers:
        """The numbers of the steps in the range that count, ascending: settled ones off spans, others off rows."""

        def read(connection: Connection) -> Numbers:
            covered = self._settled.read(connection, run, (), first, last)
            later = [*in_range(run, max(covered.end + 1, first or 0), last), steps.c.state != OPEN, is_last_minibatch()]
            after = connection.scalars(select(steps.c.step).where(*later).order_by(steps.c.step)).all()
            index = covered.index
            return np.concatenate([index.step[index.last_of_each_step()], np.array(after, np.int64)])

        return self._numbers.read(connection, run, (first, last), read)

    def _of(self, connection: Connection, rows: Sequence[Any]) -> list[tuple[int, int, StepSummary]]:
        """Of rows of _COLUMNS, ascending; a block stands once for all its steps, under the last one that is named."""
        rows = sorted(rows, key=lambda row: row.step)
        last = {row.block or -row.step - 1: row for row in rows}
        shared = {row.block for row in rows if row.block}
        query = select(blocks.c.id, blocks.c.summary).where(blocks.c.id.in_(shared))
        of_block = {block: summary for block, summary in connection.execute(query)}
        kept = [(row.step, row.minibatch, of_block.get(row.block) or row.summary) for row in last.values()]
        return [(step, minibatch, found) for step, minibatch, summary in kept for found in self._read(step, summary)]

    def _read(self, step: int, summary: bytes) -> Sequence[StepSummary]:
        """It, or nothing where it cannot be read."""
        found = readable(self._decoded, summary, step)
        return () if found is None else (found,)


def own_steps(
    connection: Connection, run: str, first: int | None, last: int | None, most: int
) -> list[tuple[int, int]]:
    """(step, minibatch) of `most` steps that count and have a summary of their own, spread evenly over the range."""
    own = _counting(connection, run, first, last).where(func.coalesce(steps.c.block, 0) == 0)
    rows = connection.execute(own.with_only_columns(steps.c.step, steps.c.minibatch).order_by(steps.c.step)).all()
    return [(step, minibatch) for step, minibatch in spread(rows, most)]


def _bytes(summary: StepSummary, blob: bytes) -> int:
    """What a summary takes with what it is known by."""
    return len(blob) + summary.arrays.nbytes


def _newest(connection: Connection, run: str, first: int | None, last: int | None, most: int) -> Sequence[Any]:
    query = _counting(connection, run, first, last).order_by(steps.c.step.desc()).limit(most)
    return connection.execute(query).all()


def _counting(connection: Connection, run: str, first: int | None, last: int | None) -> "Select[*tuple[Any, ...]]":
    """The rows of the last gradient steps that count of each step in the range."""
    counts = in_range(run_id(connection, run), first, last)
    return select(*_COLUMNS).where(*counts, steps.c.state != OPEN, is_last_minibatch())
