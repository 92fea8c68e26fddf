"""Has runs judged by their rules, and keeps what they say, in the transaction of what changed their figures.

So a breach is counted if and only if its step is stored. The rules come from outside as a Judge, a pure function; the
caller holds the rows of the runs.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from sqlalchemy import Connection, insert, select, update

from offpolicy_monitor.store.alert_rows import EPISODE, Episode, end_all, open_alerts, save
from offpolicy_monitor.store.codec import pack, unpack
from offpolicy_monitor.store.histories import Histories, RunHistory
from offpolicy_monitor.store.locking import HeldRun, hold_ids
from offpolicy_monitor.store.run_rows import run_id
from offpolicy_monitor.store.tables import ACTIVE, PENDING, alerts, judgements, runs
from offpolicy_monitor.store.timing import incomplete_since, median_step_seconds


class Judge(Protocol):
    """The rules. `paths` are the figures they look at; episodes are mappings with the keys of alert_rows.EPISODE."""

    @property
    def paths(self) -> Sequence[str]: ...

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

    def runs(self, connection: Connection, held: Iterable[HeldRun], now: float) -> None:
        """Judge runs by their newest steps that count; nothing is said of a run that has none."""
        wanted = list(held) if self.judge.paths else []
        before = open_alerts(connection, [run.id for run in wanted]) if wanted else {}
        for run in wanted:
            history = self.histories.read(connection, run.id)
            if history.steps:
                states, episodes = self.judge.steps(run, history, before[run.id])
                save(connection, run.id, before[run.id], episodes, now)
                _keep(connection, run.id, history.steps[-1], states)

    def changed(self, connection: Connection, run: HeldRun, now: float) -> None:
        """Judge a run whose settings have changed; of one that is finished, everything is over."""
        if run.finished_at is None:
            self.runs(connection, [run], now)
        else:
            end_all(connection, run.id, now)


def judge_timing(connection: Connection, judge: Judge, now: float, expiry: float) -> int:
    """Judge all runs that are not finished by the wall clock; answers for how many something changed.

    A run that has been silent for `expiry` seconds has left: its alerts are resolved.
    """
    left = _end_expired(connection, now, expiry)
    waiting = incomplete_since(connection, now - expiry)
    query = (
        select(runs.c.id, runs.c.last_batch_at, judgements.c.step_seconds)
        .select_from(runs.outerjoin(judgements))
        .where(runs.c.finished_at.is_(None), runs.c.last_batch_at >= now - expiry)
    )
    times = {
        run: (usual, now - last, now - waiting[run] if run in waiting else None)
        for run, last, usual in connection.execute(query)
    }
    held = {run.id: run for run in hold_ids(connection, times).values()}
    before = open_alerts(connection, held)
    changed = 0
    for run in held.values():
        after = judge.timing(run, *times[run.id], before[run.id])
        if after != [{name: row[name] for name in EPISODE} for row in before[run.id]]:
            save(connection, run.id, before[run.id], after, now)
            changed += 1
    return changed + left


def read_states(connection: Connection, run: str) -> tuple[int | None, list[dict[str, Any]]]:
    """The step that a run was judged at last, and the states of its rules; Refusal 404 where there is no such run."""
    query = select(judgements.c.step, judgements.c.states).where(judgements.c.run_id == run_id(connection, run))
    row = connection.execute(query).one_or_none()
    return (row.step, unpack(row.states)["states"]) if row is not None else (None, [])


def _end_expired(connection: Connection, now: float, expiry: float) -> int:
    query = select(alerts.c.run_id).join(runs, runs.c.id == alerts.c.run_id).distinct()
    expired = query.where(alerts.c.state.in_((PENDING, ACTIVE)), runs.c.last_batch_at < now - expiry)
    found = connection.scalars(expired).all()
    for run in found:
        end_all(connection, run, now)
    return len(found)


def _keep(connection: Connection, run: int, step: int, states: list[dict[str, Any]]) -> None:
    values = {"step": step, "step_seconds": median_step_seconds(connection, run), "states": pack({"states": states})}
    changed = connection.execute(update(judgements).where(judgements.c.run_id == run).values(values))
    if not changed.rowcount:
        connection.execute(insert(judgements).values(run_id=run, **values))
