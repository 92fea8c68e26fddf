"""Has runs judged by their rules, and keeps what they say, in the transaction of what changed their figures.

A training step is judged once, when it is over; while it is open, what was said of the one before stands. So a breach
is counted if and only if its step is stored. The rules come from outside as a Judge, a pure function; the caller holds
the rows of the runs.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import orjson
from sqlalchemy import Connection, select

from offpolicy_monitor.store.rows import training_steps as training_rows
from offpolicy_monitor.store.rows.alerts import Episode, end_all, save
from offpolicy_monitor.store.rows.codec import pack, unpack
from offpolicy_monitor.store.rows.held import HeldRun
from offpolicy_monitor.store.rows.histories import Histories, RunHistory
from offpolicy_monitor.store.rows.memory import RunMemory
from offpolicy_monitor.store.rows.runs import run_id
from offpolicy_monitor.store.rows.statement import putting
from offpolicy_monitor.store.rows.step_times import median_step_seconds
from offpolicy_monitor.store.rows.tables import judgements
from offpolicy_monitor.store.rows.training_step import TrainingStep
from offpolicy_monitor.store.write.judged_figures import Merges, are_headlines, judged_figures

#: States of rules, ready for JSON or as JSON.
States = Sequence[dict[str, Any]] | orjson.Fragment


class Judge:
    """The rules: this one has none, and others derive from it. Episodes are mappings with the keys of
    rows.alerts.EPISODE."""

    @property
    def paths(self) -> Sequence[str]:
        """The figures they look at; without any no step is judged."""
        return ()

    @property
    def of_all(self) -> Collection[str]:
        """Those of them that are of the merge of all gradient steps of a training step."""
        return ()

    def steps(self, run: HeldRun, history: RunHistory, before: Sequence[Episode]) -> tuple[States, list[Episode]]:
        """At the newest step: the states, and the episodes that remain; `before` are those not over."""
        return [], list(before)

    def timing(
        self,
        run: HeldRun,
        step_seconds: float | None,
        silence: float,
        open_for: float | None,
        before: Sequence[Episode],
    ) -> list[Episode]:
        """By the wall clock, all in seconds: the episodes that remain."""
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
        known: Mapping[int, RunMemory] = MappingProxyType({}),
        time_is_up: bool = False,
    ) -> None:
        """Of training steps that may be over, judge those that are, and wait for what the others lack.

        Where their time is up, nothing is waited for. `known` are memories of runs by id, which are kept right.
        """
        if not self.judge.paths:
            return
        memories = {run.id: known.get(run.id) or RunMemory(run.id) for run in held.values()}
        judged = set()
        # In their order: how many gradient steps one had tells how many to wait for in the next.
        for step in sorted(touched, key=lambda step: (step.run, step.step)):
            run = held[step.run]
            memory = memories[run.id]
            if not (time_is_up or _is_over(connection, run.id, step)):
                memory.wait(connection, step.step, (step.declared, step.since))
                continue
            memory.wait_no_longer(connection, step.step)
            if step.can_be_judged:
                figures = self._figures(connection, run, step, merges)
                are_kept = are_headlines(step, merges, self.judge.paths)
                checksum = training_rows.keep(connection, (run.id, step.step), step, figures, are_kept)
                if not self.histories.add(run.id, (step.step, step.attempt, checksum), figures):
                    memory.history = None
                judged.add(step.run)
        self.runs(connection, [held[name] for name in sorted(judged)], now, memories)

    def _figures(self, connection: Connection, run: HeldRun, step: TrainingStep, merges: Merges) -> dict[str, float]:
        return judged_figures(connection, run, step, merges, self.judge.paths, self.judge.of_all)

    def runs(
        self,
        connection: Connection,
        held: Iterable[HeldRun],
        now: float,
        known: Mapping[int, RunMemory] = MappingProxyType({}),
    ) -> None:
        """Judge runs by the training steps that are over; nothing is said of a run that has none."""
        for run in held if self.judge.paths else ():
            memory = known.get(run.id) or RunMemory(run.id)
            if memory.history is None:
                memory.history = self.histories.read(connection, run.id)
            history = memory.history
            if history.steps:
                before = memory.alerts(connection)
                states, episodes = self.judge.steps(run, history, before)
                memory.alerts_are(save(connection, run.id, before, episodes, now))
                if run.finished_at is not None:
                    end_all(connection, run.id, now)
                    memory.alerts_are(None)
                seconds = median_step_seconds(memory.begun(connection), now)
                kept = {"step": history.steps[-1], "step_seconds": seconds, "states": pack({"states": states})}
                _KEEP.run(connection, {"run_id": run.id, **kept})

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


_KEEP: Final = putting(judgements)
