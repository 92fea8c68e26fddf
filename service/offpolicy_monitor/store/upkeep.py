"""Upkeep: what keeps steps and runs right beside the shards that arrive, in many small transactions, each in its turn.

Large steps are merged, overdue ones let count, silent runs told, deleted ones removed, and old history made small. The
one writer is held for few rows at a time.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Final

from sqlalchemy import Connection

from offpolicy_monitor.errors import Unavailable
from offpolicy_monitor.store import space
from offpolicy_monitor.store.rows import alerts as alert_rows
from offpolicy_monitor.store.rows import merged_steps, verdicts
from offpolicy_monitor.store.rows.gradient_steps import GradientStep
from offpolicy_monitor.store.rows.merged_steps import Failed, Merged
from offpolicy_monitor.store.rows.recent import Recent
from offpolicy_monitor.store.rows.records import Receipt, StepKey
from offpolicy_monitor.store.write import clocks, delete, finish, settle, span, thin, wall_clock
from offpolicy_monitor.store.write.judge import Judging

#: Spans of columns that are made at most before it is told how many.
SPANS: Final = 64
#: Opens one transaction.
Transaction = Callable[[], AbstractContextManager[Connection]]
#: How work that is done in many small transactions waits for its turn before each of them; answers what it answers.
Turn = Callable[[Callable[[], int]], int]


def at_once(work: Callable[[], int]) -> int:
    """The turn of a caller who has the store for himself."""
    return work()


class Upkeep:
    """Work on what is stored already. Safe to share between threads.

    `failed` is told of every step that cannot be merged or kept; such a step is tried again later, less and less often.
    """

    def __init__(
        self,
        reading: Transaction,
        writing: Transaction,
        judging: Judging,
        recent: Recent,
        clock: Callable[[], float],
        failed: Failed,
    ) -> None:
        self._reading, self._writing, self._recent = reading, writing, recent
        self._judging, self._clock, self._failed = judging, clock, failed
        self._set_aside = finish.SetAside()
        self._spans_from = 0

    def merge(self, keys: Sequence[StepKey]) -> dict[StepKey, Merged]:
        """The merges of steps with all shards that are stored now; writes nothing, and takes its time.

        One that cannot be merged is set aside and left out.
        """
        merged = {}
        for key in keys:
            with self._reading() as connection:
                parts, count = merged_steps.read_parts(connection, key, self._recent)
            try:
                if parts:
                    merged[key] = merged_steps.merge_parts(parts, count).with_figures()
            except Exception as error:
                with self._reading() as connection:
                    step = finish.read_step(connection, key)
                if step is not None:
                    self._put_aside(key, step, error)
        return merged

    def keep(self, merges: Mapping[StepKey, Merged]) -> int:
        """Let steps count with these merges, and judge their runs; answers how many changed."""
        with self._writing() as connection:
            kept = finish.keep(connection, merges, self._judging, self._clock(), self._put_aside)
        for key in kept:
            self._set_aside.forget(key)
            self._recent.drop(key)
        return len(kept)

    def finished(self, receipt: Receipt, run: str) -> Receipt:
        """The receipt of a shard whose step has been merged since, with what the rules say of its run now."""
        with self._reading() as connection:
            rows = alert_rows.open_alerts_of(connection, run)
        worst = tuple(verdicts.worst_of_each_rule(rows))
        return replace(receipt, verdict=verdicts.verdict(rows), alerts=worst, step_completed=True, unmerged=None)

    def sweep(self, now: float, timeout: float, turn: Turn = at_once) -> int:
        """Let steps count whose first shard is `timeout` seconds old and that still lack shards, and those that lack
        only their merge; answers how many. Training steps for which nothing came in that time are judged."""
        self._bring_to(now, turn)
        closed = 0
        while True:
            clock = time.monotonic()
            limit = finish.PAGE + len(self._set_aside)
            with self._reading() as connection:
                due = finish.read_due(connection, now - timeout, limit)
            wanted = [one for one in due if not self._set_aside.holds(one, clock)]
            for start in range(0, len(wanted), finish.MOST):
                merges = self.merge(wanted[start : start + finish.MOST])
                closed += turn(partial(self.keep, merges)) if merges else 0
            if len(due) < limit:
                break
        self._until_none(turn, lambda c: finish.judge_overdue(c, now - timeout, self._judging, self._clock()))
        return closed

    def watch(self, expiry: float, turn: Turn = at_once) -> int:
        """Judge runs by the wall clock; answers for how many something changed.

        `expiry` are the seconds of silence after which a run has left.
        """
        moment = wall_clock.Moment(self._clock(), expiry)
        self._bring_to(moment.now, turn)
        changed = self._until_none(turn, lambda connection: wall_clock.end_expired(connection, moment))
        after: int | None = 0
        while after is not None:
            with self._reading() as connection:
                found, after = wall_clock.changing(connection, self._judging.judge, moment, after)
            for start in range(0, len(found), wall_clock.MOST):
                changed += turn(partial(self._change, moment, found[start : start + wall_clock.MOST]))
        return changed

    def _bring_to(self, now: float, turn: Turn) -> None:
        """Where the clock was set back, let no age be counted from a time to come."""
        with self._reading() as connection:
            ahead = clocks.any_ahead(connection, now)
        if ahead:
            self._until_none(turn, lambda connection: clocks.bring_to_now(connection, now))

    def _change(self, moment: wall_clock.Moment, ids: Sequence[int]) -> int:
        with self._writing() as connection:
            return wall_clock.change(connection, self._judging.judge, moment, ids)

    def purge(self, turn: Turn = at_once) -> int:
        """Remove what is left of deleted runs, in portions; answers how many portions there were."""
        return self._until_none(turn, delete.Deletion().portion)

    def tidy(self, settle_after: float, block_steps: int, turn: Turn = at_once) -> int:
        """Make steps small whose last shard is `settle_after` seconds old; answers how many steps were changed.

        Their shards' summaries go, and of all but the newest steps of a run `block_steps` each are merged into one;
        with 1 each step keeps its own. What fails for one run is raised after the others were done.
        """
        before = self._clock() - settle_after
        changed = self._until_none(turn, lambda connection: settle.settle_portion(connection, before))
        with self._reading() as connection:
            wanted = settle.read_runs(connection, block_steps) if block_steps > 1 else ()
        return changed + _of_each(wanted, lambda run: self._merge_blocks(run, block_steps, turn))

    def thin(self, thin_after: float, turn: Turn = at_once) -> int:
        """Make steps of blocks thin whose last shard is `thin_after` seconds old; answers how many there were.

        Ten blocks become one each time. What fails for one run is raised after the others were done.
        """
        before = self._clock() - thin_after
        with self._reading() as connection:
            wanted = thin.read_runs(connection, before)
        return _of_each(wanted, lambda run: self._thin(run, before, turn))

    def _thin(self, run: int, before: float, turn: Turn) -> int:
        """Make the old steps of one run thin, ten blocks after ten."""
        changed = 0
        while True:
            with self._reading() as connection:
                thick = thin.read_blocks(connection, run, before)
            if thick is None:
                return changed
            self._until_none(turn, partial(thin.drop_shards, thick=thick))
            summary = thin.merge(thick)
            if not turn(partial(self._once, partial(thin.keep, thick=thick, summary=summary))):
                return changed
            changed += thick.steps

    def _merge_blocks(self, run: int, block_steps: int, turn: Turn) -> int:
        """Merge the old steps of one run, a block per turn."""
        merged = 0
        while True:
            with self._reading() as connection:
                groups = settle.read_members(connection, run, block_steps)
            for members in groups:
                block = settle.make_block(run, members)
                if not turn(partial(self._once, partial(settle.keep_block, block=block))):
                    return merged
                merged += block_steps
            if not groups:
                return merged

    def put_into_columns(self, most: int = SPANS, turn: Turn = at_once) -> int:
        """Put headline figures of settled steps into columns; answers of how many steps, after `most` spans at most.

        Of some runs, others each time, the spans are dropped whose steps have changed; they are made again later.
        What fails for one run is raised after the others were done.
        """
        left = most

        def of_run(run: int) -> int:
            nonlocal left
            done = 0
            while left > 0:
                with self._reading() as connection:
                    found = span.read_span(connection, run)
                if found is None:
                    break
                done += turn(partial(self._once, partial(span.keep, span=found)))
                left -= 1
            return done

        with self._reading() as connection:
            fallen, self._spans_from = span.read_fallen(connection, self._spans_from)
        for run, end in fallen:
            turn(partial(self._once, partial(span.drop, run=run, end=end)))
        with self._reading() as connection:
            wanted = span.read_runs(connection)
        return _of_each(wanted, of_run)

    def give_back(self, turn: Turn = at_once) -> int:
        """Give free pages of a SQLite file back to the file system, in portions; answers how many portions."""
        return self._until_none(turn, space.give_back_portion)

    def _until_none(self, turn: Turn, work: Callable[[Connection], int]) -> int:
        """Do the work, a transaction each, until it finds nothing to do; answers how often it did."""
        done = 0
        while found := turn(partial(self._once, work)):
            done += found
        return done

    def _once(self, work: Callable[[Connection], int]) -> int:
        with self._writing() as connection:
            return work(connection)

    def _put_aside(self, key: StepKey, step: GradientStep, error: Exception) -> None:
        self._set_aside.put(key, time.monotonic())
        self._failed(step, error)


def _of_each(runs: Iterable[int], work: Callable[[int], int]) -> int:
    """The sum of what the work answers of each run; what fails for one is raised after the others were done."""
    changed, failures = 0, []
    for run in runs:
        try:
            changed += work(run)
        except Unavailable:
            raise
        except Exception as error:
            failures.append(error)
    if failures:
        raise failures[0]
    return changed
