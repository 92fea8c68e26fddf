"""Lets steps count: those whose deadline has passed, with the shards they have, and those that only lack their merge.

In three parts, so that the one writer is held for none of the merging: which steps are due (read), their merges (read,
and computed outside of any transaction), and keeping these (written, few at a time). What was read may have changed
when it is kept: a merge of more shards than the kept one is of is right at any time, any other is dropped.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from sqlalchemy import Connection, or_, select, tuple_
from sqlalchemy.exc import DBAPIError

from offpolicy_monitor.store.rows import training_steps as training_rows
from offpolicy_monitor.store.rows.gradient_steps import LEDGER_COLUMNS, GradientStep, gradient_step
from offpolicy_monitor.store.rows.held import HeldRun, hold_ids
from offpolicy_monitor.store.rows.merged_steps import Merged
from offpolicy_monitor.store.rows.records import StepKey
from offpolicy_monitor.store.rows.tables import UNMERGED, runs, steps
from offpolicy_monitor.store.write.judge import Judging
from offpolicy_monitor.store.write.save import save_steps

#: Steps kept in one transaction.
MOST: Final = 8
#: Due steps looked up at once.
PAGE: Final = 1000
#: Told of a step that cannot be kept, and why.
PutAside = Callable[[StepKey, GradientStep, Exception], None]
STEP_KEY: Final = (steps.c.run_id, steps.c.step, steps.c.minibatch, steps.c.attempt)
FIRST_WAIT, LONGEST_WAIT = 600.0, 86_400.0


@dataclass
class SetAside:
    """Steps that could not be merged or kept: tried again after ten minutes, then after twice as long each time.

    Times are of a clock that only goes forward, seconds. Known to this process only: another one tries for itself.
    """

    _until: dict[StepKey, tuple[float, float]] = field(default_factory=dict)

    def put(self, key: StepKey, now: float) -> None:
        """It has failed just now."""
        wait = min(2 * self._until[key][1], LONGEST_WAIT) if key in self._until else FIRST_WAIT
        self._until[key] = (now + wait, wait)

    def holds(self, key: StepKey, now: float) -> bool:
        """Whether it is not to be tried yet."""
        return key in self._until and now < self._until[key][0]

    def forget(self, key: StepKey) -> None:
        """It has been kept, or it is gone."""
        self._until.pop(key, None)

    def __len__(self) -> int:
        return len(self._until)


def read_due(connection: Connection, deadline: float, limit: int) -> list[StepKey]:
    """Steps to let count, the oldest first: their first shard came at `deadline` (unix seconds) or before, or
    they should count already with shards that are not in their merge."""
    should_count = or_(steps.c.first_received_at <= deadline, steps.c.received == steps.c.shards, steps.c.merged > 0)
    query = select(*STEP_KEY).join(runs, runs.c.id == steps.c.run_id).where(UNMERGED, should_count)
    query = query.where(runs.c.deleted.is_(None)).order_by(steps.c.first_received_at, steps.c.id)
    return [tuple(row) for row in connection.execute(query.limit(limit))]


def read_step(connection: Connection, key: StepKey) -> GradientStep | None:
    """A step by its key; None where it is gone."""
    query = select(*LEDGER_COLUMNS, runs.c.name).join(runs, runs.c.id == steps.c.run_id)
    row = connection.execute(query.where(tuple_(*STEP_KEY) == key)).one_or_none()
    return None if row is None else gradient_step(row.name, row)


def keep(
    connection: Connection, merges: Mapping[StepKey, Merged], judging: Judging, now: float, failed: PutAside
) -> list[StepKey]:
    """Keep merges of steps and judge the training steps that are over by them; answers the steps that changed.

    A step that cannot be kept is told to `failed`, and leaves the others undisturbed.
    """
    kept: list[StepKey] = []
    for run in hold_ids(connection, {key[0] for key in merges}).values():
        of_run = {key: merged for key, merged in merges.items() if key[0] == run.id}
        try:
            kept += _keep_together(connection, run, of_run, judging, now)
        except DBAPIError:
            raise
        except Exception:
            kept += _keep_apart(connection, run, of_run, judging, now, failed)
    return kept


def judge_overdue(connection: Connection, deadline: float, judging: Judging, now: float) -> int:
    """Judge training steps, MOST at most, whose newest gradient step began at `deadline` (unix seconds) or before.

    Of their gradient steps those that count are judged, and no other is waited for; answers how many steps they were.
    """
    runs_ = {run for run, _ in training_rows.overdue(connection, deadline, MOST)}
    if not runs_:
        return 0
    held = hold_ids(connection, runs_)
    names = {run.id: name for name, run in held.items()}
    # Asked again, now that nobody else changes these runs.
    keys = [key for key in training_rows.overdue(connection, deadline, MOST) if key[0] in names]
    waited_for = training_rows.load(connection, names, keys)
    judging.settle(connection, held, waited_for, {}, now, time_is_up=True)
    return len(waited_for)


def _keep_together(
    connection: Connection, run: HeldRun, merges: Mapping[StepKey, Merged], judging: Judging, now: float
) -> list[StepKey]:
    """Keep what is newer than what is kept, in a savepoint."""
    newer = [(key, step) for key, step in _read(connection, run, merges) if _is_newer(merges[key], step)]
    if newer:
        with connection.begin_nested():
            of_step = {id(step): merges[key] for key, step in newer}
            save_steps(connection, {run.name: run}, [step for _, step in newer], of_step)
            of_rows = {step.id: merges[key] for key, step in newer}
            touched = training_rows.load(connection, {run.id: run.name}, {key[:2] for key, _ in newer})
            judging.settle(connection, {run.name: run}, touched, of_rows, now)
    return [key for key, _ in newer]


def _keep_apart(
    connection: Connection,
    run: HeldRun,
    merges: Mapping[StepKey, Merged],
    judging: Judging,
    now: float,
    failed: PutAside,
) -> list[StepKey]:
    """Each step in a savepoint of its own, so that only the one at fault is left as it was."""
    kept: list[StepKey] = []
    for key, merged in merges.items():
        try:
            kept += _keep_together(connection, run, {key: merged}, judging, now)
        except DBAPIError:
            raise
        except Exception as error:
            failed(*_read(connection, run, [key])[0], error)
    return kept


def _read(connection: Connection, run: HeldRun, wanted: Iterable[StepKey]) -> list[tuple[StepKey, GradientStep]]:
    """Those of the steps that stand."""
    query = select(*LEDGER_COLUMNS).where(tuple_(*STEP_KEY).in_(list(wanted)), ~steps.c.superseded)
    found = [gradient_step(run.name, row) for row in connection.execute(query)]
    return [((run.id, step.step, step.minibatch, step.attempt), step) for step in found]


def _is_newer(merged: Merged, step: GradientStep) -> bool:
    return merged.count > (step.merged or 0)
