"""Memory of runs: what a process knows of them from one transaction to the next, so that it need not ask again.

What is known of a run stands while the run's row has the revision that it is known under: whoever changes the run, in
whatever process, gives it another one (rows.held). An older release does not, but its shards change the time of the
last batch. A transaction that changes a run takes its memory out, and puts it
back with its commit alone, so that one that fails leaves nothing wrong behind.
"""

from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy import Connection, bindparam, func, select

from offpolicy_monitor.store.rows import step_times, training_steps
from offpolicy_monitor.store.rows.alerts import open_alerts
from offpolicy_monitor.store.rows.gradient_steps import GradientStep
from offpolicy_monitor.store.rows.headlines import Ids
from offpolicy_monitor.store.rows.held import HeldRun
from offpolicy_monitor.store.rows.histories import RunHistory
from offpolicy_monitor.store.rows.recent import Identity
from offpolicy_monitor.store.rows.records import ShardKey
from offpolicy_monitor.store.rows.statement import Statement
from offpolicy_monitor.store.rows.tables import steps

#: Of a run's row: its revision, and when its last batch came, unix seconds.
Version = tuple[int, float | None]
#: Runs kept, of which the one that was changed longest ago goes first; training steps kept of each, the newest.
MOST_RUNS: Final = 256
MOST_STEPS: Final = 8
#: Sets of names of headline figures whose ids are kept.
MOST_NAMES: Final = 64
#: Where they are, in what SQLAlchemy keeps of a connection of the driver.
NAMES: Final = "offpolicy-names"
_NEWEST: Final = Statement(select(func.max(steps.c.step)).where(steps.c.run_id == bindparam("run", required=True)))


@dataclass
class Standing:
    """A training step under its newest attempt: gradient steps by minibatch, and the shards that are stored of it.

    `whole`: every shard that is stored is here; else those that were asked for.
    """

    whole: bool = False
    gradient_steps: dict[int, GradientStep] = field(default_factory=dict)
    shards: dict[ShardKey, Identity] = field(default_factory=dict)


@dataclass(eq=False)
class RunMemory:
    """What is known of one run; each part is read where it is asked for first.

    steps: training steps that began while the run was known. history: what rules look back on, where it is right.
    """

    run: int
    steps: dict[int, Standing] = field(default_factory=dict)
    history: RunHistory | None = None
    _newest: int | None = None
    _alerts: list[dict[str, Any]] | None = None
    _waiting: dict[int, training_steps.Waiting] | None = None
    _begun: dict[int, float] | None = None

    def standing(self, connection: Connection, step: int) -> Standing | None:
        """A training step, without asking the database for it; None where that must be asked."""
        if step not in self.steps and step > self.newest(connection):
            self._newest, self.steps[step] = step, Standing(whole=True)
            for old in sorted(self.steps)[:-MOST_STEPS]:
                del self.steps[old]
        return self.steps.get(step)

    def newest(self, connection: Connection) -> int:
        """No step beyond this one is stored."""
        if self._newest is None:
            [(newest,)] = _NEWEST.rows(connection, run=self.run)
            self._newest = -1 if newest is None else newest
        return self._newest

    def alerts(self, connection: Connection) -> list[dict[str, Any]]:
        """Its alerts that are not over, in the order they began."""
        if self._alerts is None:
            self._alerts = open_alerts(connection, [self.run])[self.run]
        return self._alerts

    def alerts_are(self, rows: list[dict[str, Any]] | None) -> None:
        """What they are now; None where they are to be read again."""
        self._alerts = rows

    def waiting(self, connection: Connection) -> dict[int, training_steps.Waiting]:
        """Training steps that are waited for."""
        if self._waiting is None:
            self._waiting = training_steps.waiting(connection, self.run)
        return self._waiting

    def wait(self, connection: Connection, step: int, waiting: training_steps.Waiting) -> None:
        """A training step is waited for."""
        if self.waiting(connection).get(step) != waiting:
            training_steps.wait(connection, (self.run, step), waiting)
            self.waiting(connection)[step] = waiting

    def wait_no_longer(self, connection: Connection, step: int) -> None:
        """A training step is over."""
        if self.waiting(connection).pop(step, None) is not None:
            training_steps.drop_waiting(connection, (self.run, step))

    def forget(self, connection: Connection, restarted: Collection[int]) -> None:
        """Another attempt has begun these training steps again: what they were judged by counts no longer."""
        if restarted:
            training_steps.forget(connection, {(self.run, step) for step in restarted})
            self._waiting = self.history = None

    def begun(self, connection: Connection) -> dict[int, float]:
        """When its newest training steps began, unix seconds, and maybe some before them."""
        if self._begun is None:
            self._begun = step_times.beginnings(connection, self.run)
        return self._begun

    def began(self, step: int, when: float) -> None:
        """A training step began then, as far as is known now."""
        if self._begun is not None:
            self._begun[step] = when
            if len(self._begun) > 2 * step_times.LOOKED_BACK_ON:
                self._begun = dict(sorted(self._begun.items())[-step_times.LOOKED_BACK_ON :])


class Memories:
    """By run id; and what is the same for all runs. Used by one transaction at once."""

    def __init__(self) -> None:
        self._names: Ids = {}
        self._names_changed: Ids = {}
        self._kept: OrderedDict[int, tuple[Version, RunMemory]] = OrderedDict()
        self._changed: dict[int, tuple[Version, RunMemory]] = {}

    def take(self, run: HeldRun) -> RunMemory:
        """What is known of a run that is held; nothing at all, where it was changed by somebody else."""
        version, memory = self._kept.pop(run.id, (None, None))
        stands = version == (run.revision, run.last_batch_at)
        return memory if memory is not None and stands else RunMemory(run.id)

    def names(self, connection: Connection) -> Ids:
        """Ids of sets of names of headline figures; what a transaction adds stands once it has committed.

        They are forgotten with the driver's connection: another one may lead to a server that has taken the place of
        this one, and lacks the newest of what was committed here.
        """
        self._names = connection.info.setdefault(NAMES, {})
        self._names_changed = dict(self._names) if len(self._names) <= MOST_NAMES else {}
        return self._names_changed

    def put_back(self, memory: RunMemory, version: Version) -> None:
        """What is known of a run once this transaction has committed, and what its row has then."""
        self._changed[memory.run] = version, memory

    def end(self, committed: bool) -> None:
        """The transaction is over."""
        if committed:
            self._kept.update(self._changed)
            self._names.clear()
            self._names.update(self._names_changed)
        self._changed.clear()
        self._names_changed = dict(self._names)
        while len(self._kept) > MOST_RUNS:
            self._kept.popitem(last=False)
