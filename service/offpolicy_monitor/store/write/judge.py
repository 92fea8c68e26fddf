"""Has runs judged by their rules, and keeps what they say, in the transaction of what changed their figures.

A training step is judged once, when it is over; while it is open, what was said of the one before stands. So a breach
is counted if and only if its step is stored. The rules come from outside as a Judge, a pure function; the caller holds
the rows of the runs.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from sqlalchemy import Connection, bindparam, insert, select, update

from offpolicy_monitor.store.rows import training_steps as training_rows
from offpolicy_monitor.store.rows.alerts import Episode, end_all, open_alerts, save
from offpolicy_monitor.store.rows.codec import pack, unpack
from offpolicy_monitor.store.rows.held import HeldRun
from offpolicy_monitor.store.rows.runs import run_id
from offpolicy_monitor.store.rows.step_times import median_step_seconds
from offpolicy_monitor.store.rows.tables import judgements
from offpolicy_monitor.store.rows.training import TrainingStep
from offpolicy_monitor.store.write.histories import Histories, RunHistory
from offpolicy_monitor.store.write.judged_figures import Merges, judged_figures


class Judge(Protocol):
    """The rules. `paths` are the figures they look at, `of_all` those of them that are of the merge of all gradient
    steps of a training step; episodes are mappings with the keys of alert_rows.EPISODE."""

    @property
    def paths(self) -> Sequence[str]: ...

    @property
    def of_all(self) -> Collection[str]: ...

    def steps(
        self, run: HeldRun, history: RunHistory, before: Sequence[Episode]
    ) -> tuple[list[dict[str, Any]], list[Episode]]:
        """At the newest step: states ready for JSON, and the episodes that remain; `before` are those not over."""

    def timing(
        self,
        run: HeldRun,
        step_seconds: float | None,
        silence: float,
        open_for: float | None,
        before: Sequence[Episode],
    ) -> list[Episode]:
        """By the wall clock, all in seconds: the episodes that remain."""


@dataclass(frozen=True)
class NoRules:
    """A judge that has nothing to say."""

    paths: Sequence[str] = ()
    of_all: Collection[str] = ()

    def steps(
        self, run: HeldRun, history: RunHistory, before: Sequence[Episode]
    ) -> tuple[list[dict[str, Any]], list[Episode]]:
        """No states; what there is remains."""
        return [], list(before)

    def timing(
        self,
        run: HeldRun,
        step_seconds: float | None,
        silence: float,
        open_for: float | None,
        before: Sequence[Episode],
    ) -> list[Episode]:
        """What there is remains."""
        return list(before)


@dataclass(frozen=True)
class Judging:
    """A judge, with the histories it has seen."""

    judge: Judge
    histories: Histories

    @classmethod
    def by(cls, judge: Judge) -> "Judging":
        """With histories that are still to be read."""
        return cls(judge, Histories(judge.paths))

    def settle(
        self,
        connection: Connection,
        held: Mapping[str, HeldRun],
        touched: Sequence[TrainingStep],
        merges: Merges,
        now: float,
        time_is_up: bool = False,
    ) -> dict[int, list[dict[str, Any]]]:
        """Of training steps that may be over, judge those that are, and wait for what the others lack.

        Where their time is up, nothing is waited for. Answers as `runs` does.
        """
        if not self.judge.paths:
            return {}
        judged = set()
        # In their order: how many gradient steps one had tells how many to wait for in the next.
        for step in sorted(touched, key=lambda step: (step.run, step.step)):
            run = held[step.run]
            place = run.id, step.step
            if not (time_is_up or _is_over(connection, run.id, step)):
                training_rows.wait(connection, place, step)
                continue
            training_rows.drop_waiting(connection, place)
            if step.can_be_judged:
                figures = self._figures(connection, run, step, merges)
                checksum = training_rows.keep(connection, place, step, figures)
                self.histories.add(run.id, (step.step, step.attempt, checksum), figures)
                judged.add(step.run)
        return self.runs(connection, [held[name] for name in sorted(judged)], now)

    def _figures(self, connection: Connection, run: HeldRun, step: TrainingStep, merges: Merges) -> dict[str, float]:
        return judged_figures(connection, run, step, merges, self.judge.paths, self.judge.of_all)

    def runs(self, connection: Connection, held: Iterable[HeldRun], now: float) -> dict[int, list[dict[str, Any]]]:
        """Judge runs by the training steps that are over; nothing is said of a run that has none.

        Answers the open alerts of those runs whose alerts have not changed by it.
        """
        wanted = list(held) if self.judge.paths else []
        known = open_alerts(connection, [run.id for run in wanted]) if wanted else {}
        for run in wanted:
            history = self.histories.read(connection, run.id)
            if history.steps:
                states, episodes = self.judge.steps(run, history, known[run.id])
                if save(connection, run.id, known[run.id], episodes, now):
                    del known[run.id]
                _keep(connection, run.id, history.steps[-1], states, now)
        return known

    def changed(self, connection: Connection, run: HeldRun, now: float) -> None:
        """Judge a run whose settings have changed, by what was judged before; of one that is finished, all is over."""
        if run.finished_at is None:
            self.runs(connection, [run], now)
        else:
            end_all(connection, run.id, now)


def read_states(connection: Connection, run: str) -> tuple[int | None, list[dict[str, Any]]]:
    """The step that a run was judged at last, and the states of its rules; Refusal 404 where there is no such run."""
    query = select(judgements.c.step, judgements.c.states).where(judgements.c.run_id == run_id(connection, run))
    row = connection.execute(query).one_or_none()
    return (row.step, unpack(row.states)["states"]) if row is not None else (None, [])


def _is_over(connection: Connection, run: int, step: TrainingStep) -> bool:
    return step.is_over(
        lambda: training_rows.learned(connection, run), lambda: training_rows.later(connection, run, step)
    )


def _keep(connection: Connection, run: int, step: int, states: list[dict[str, Any]], now: float) -> None:
    values = {
        "step": step,
        "step_seconds": median_step_seconds(connection, run, now),
        "states": pack({"states": states}),
    }
    changed = connection.execute(_KEEP, {"run": run, **values})
    if not changed.rowcount:
        connection.execute(insert(judgements).values(run_id=run, **values))


_KEEP: Final = (
    update(judgements)
    .where(judgements.c.run_id == bindparam("run"))
    .values({name: bindparam(name) for name in ("step", "step_seconds", "states")})
)
