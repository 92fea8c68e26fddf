"""Overviews: of each run what a list of runs and a sentence about one need of its steps, read once and kept.

What is kept of a run stands while its row has the revision that it was read under (rows.held). A run that has changed
has its newest steps read anew, and now and then all of them, since a late shard may revise an old one.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, bindparam, select

from offpolicy_monitor.store.rows import headlines, spans
from offpolicy_monitor.store.rows.codec import unpack
from offpolicy_monitor.store.rows.cursors import LARGEST_INTEGER
from offpolicy_monitor.store.rows.statement import Row, Statement
from offpolicy_monitor.store.rows.steps import is_last_minibatch
from offpolicy_monitor.store.rows.tables import OPEN, judgements, metrics, steps

#: The first steps that are kept, for the run's own baseline, and the newest.
FIRST, NEWEST = 26, 50
#: Of steps that are known, the newest ones, which are read again: late shards are mostly theirs.
REVISED: Final = 8
#: Seconds after which all steps of a run are read again, and of how many runs at once, the oldest first.
RELOAD_SECONDS: Final = 60.0
RELOADED: Final = 4
#: Runs kept, of which the one that was asked for longest ago goes first; 24 bytes for each of their steps.
MOST_RUNS: Final = 256
#: Runs whose steps are in memory at once while they are read, some 700 bytes each; what was read is kept if the rest
#: of a list cannot be.
AT_ONCE: Final = 8
#: Figures of which every step is kept; the first that a run has is what it is drawn by.
DRAWN: Final = ("gaps.mismatch.k3", "gaps.total.k3")

_READ: Final = Statement(
    select(steps.c.step, metrics.c.names_id, metrics.c.figures)
    .select_from(steps.outerjoin(metrics, metrics.c.step_id == steps.c.id))
    .where(steps.c.run_id == bindparam("run", required=True), ~steps.c.superseded, steps.c.state != OPEN)
    .where(steps.c.step >= bindparam("first", required=True), steps.c.step <= bindparam("last", required=True))
    .where(is_last_minibatch())
    .order_by(steps.c.step)
)


@dataclass(frozen=True)
class Table:
    """steps [n] int64, ascending; figures [P, n] float64, NaN where a step lacks one: P are the paths asked for."""

    steps: NDArray[np.int64]
    figures: NDArray[np.float64]

    def __getitem__(self, chosen: slice) -> "Table":
        """Some of the steps, as a copy: what it was cut out of is not kept for it."""
        return Table(self.steps[chosen].copy(), self.figures[:, chosen].copy())

    def followed_by(self, other: "Table") -> "Table":
        """Its steps before those of the other, and the other's."""
        kept = self[: int(np.searchsorted(self.steps, other.steps[0]))] if len(other.steps) else self
        joined = np.concatenate([kept.figures, other.figures], axis=1)
        return Table(np.concatenate([kept.steps, other.steps]), joined)


@dataclass(frozen=True)
class Overview:
    """drawn: every step, of DRAWN. first, newest: the first FIRST and the newest NEWEST steps, of the paths asked for;
    up to the last step of the attempt that stands, since those beyond it are of one that was given up.

    step_seconds, states: of the run's last judgement, None and empty before it. `version`, `attempt` and `last_step`
    are what it was read under, `loaded_at` when all of it was, unix seconds.
    """

    version: tuple[Any, ...]
    attempt: int | None
    last_step: int
    loaded_at: float
    drawn: Table
    first: Table
    newest: Table
    step_seconds: float | None
    states: Sequence[Mapping[str, Any]]

    @property
    def has_revision(self) -> bool:
        """Whether an equal version is of the same rows: a run that an older release wrote is read each time."""
        return self.version[0] is not None


class Overviews:
    """By run id; `paths` are the figures that windows are of. Safe to share between threads."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = (*DRAWN, *paths)
        self._kept: OrderedDict[int, Overview] = OrderedDict()
        self._lock, self._reloaded = threading.Lock(), set[int]()

    def read(self, connection: Connection, rows: Sequence[Any], now: float) -> dict[int, Overview]:
        """The overviews of runs: rows have id, revision, last_batch_at, and `attempt` and `step` of the last step."""
        with self._lock:
            known = {row.id: self._kept[row.id] for row in rows if row.id in self._kept}
        found = {row.id: known[row.id] for row in rows if row.id in known and _stands(known[row.id], row)}
        self._keep(found)
        changed = [row for row in rows if row.id not in found]
        with self._reloading({row.id: known[row.id].loaded_at for row in changed if row.id in known}, now) as again:
            known = {run: overview for run, overview in known.items() if run not in again}
            for start in range(0, len(changed), AT_ONCE):
                read = dict(self._changed(connection, changed[start : start + AT_ONCE], known, now))
                self._keep(read)
                found |= read
        return found

    @contextmanager
    def _reloading(self, loaded_at: Mapping[int, float], now: float) -> Iterator[Set[int]]:
        """The runs of which all steps are to be read again: few at once, or a list would wait, each by one reader."""
        old = [run for run, loaded in loaded_at.items() if not 0 <= now - loaded < RELOAD_SECONDS]
        with self._lock:
            mine = set(sorted(set(old) - self._reloaded, key=loaded_at.__getitem__)[:RELOADED])
            self._reloaded |= mine
        try:
            yield mine
        finally:
            with self._lock:
                self._reloaded -= mine

    def _keep(self, overviews: Mapping[int, Overview]) -> None:
        with self._lock:
            for run, overview in overviews.items():
                known = self._kept.get(run)
                # Another reader may have read all of it meanwhile.
                if known is None or known.version != overview.version or known.loaded_at <= overview.loaded_at:
                    self._kept[run] = overview
                self._kept.move_to_end(run)
            while len(self._kept) > MOST_RUNS:
                self._kept.popitem(last=False)

    def window(self, connection: Connection, run: int, first: int, last: int) -> Table:
        """The figures of the steps from `first` to `last`, of the paths asked for."""
        rows = _READ.rows(connection, run=run, first=first, last=last)
        found = self._table(connection, rows)
        return Table(found.steps, found.figures[len(DRAWN) :])

    def _changed(
        self, connection: Connection, rows: Sequence[Any], known: Mapping[int, Overview], now: float
    ) -> Iterator[tuple[int, Overview]]:
        """Read with one statement for each run, and their figures together."""
        before = {row.id: _extendable(known.get(row.id), row) for row in rows}
        before |= {row.id: self._settled(connection, row, now) for row in rows if before[row.id] is None}
        read: dict[int, list[Row]] = {}
        for row in rows:
            old = before[row.id]
            since = 0 if old is None else int(old.drawn.steps[-REVISED:][0])
            read[row.id] = _READ.rows(connection, run=row.id, first=since, last=LARGEST_INTEGER)
        whole = self._table(connection, [one for of_run in read.values() for one in of_run])
        judged = _judgements(connection, list(read))
        start = 0
        for row in rows:
            end = start + len(read[row.id])
            yield row.id, self._overview(row, whole[start:end], before[row.id], judged.get(row.id), now)
            start = end

    def _settled(self, connection: Connection, row: Any, now: float) -> Overview | None:
        """What spans have of a run, as if it had been read before; None where they are too few, or reach too far."""
        covered = spans.read(connection, row.id, None, None, DRAWN)
        covered = covered.of(covered.index.last_of_each_step())
        at = covered.index.step
        if len(at) < FIRST + NEWEST or row.step < covered.end:
            return None
        first, newest = (
            self.window(connection, row.id, int(some[0]), int(some[-1])) for some in (at[:FIRST], at[-NEWEST:])
        )
        drawn = Table(at, np.stack([covered.figures[path] for path in DRAWN]))
        return Overview((), row.attempt, row.step, now, drawn, first, newest, None, ())

    def _overview(self, row: Any, new: Table, old: Overview | None, judged: Any, now: float) -> Overview:
        drawn = Table(new.steps, new.figures[: len(DRAWN)].copy())
        last = -1 if row.step is None else row.step
        windows = Table(new.steps, new.figures[len(DRAWN) :])[: int(np.searchsorted(new.steps, last, "right"))]
        first, newest = windows, windows
        if old is not None:
            drawn, newest = old.drawn.followed_by(drawn), old.newest.followed_by(windows)
            first = old.first.followed_by(windows) if len(old.first.steps) < FIRST else old.first
        return Overview(
            version=(row.revision, row.last_batch_at),
            attempt=row.attempt,
            last_step=last,
            loaded_at=now if old is None else old.loaded_at,
            drawn=drawn,
            first=first[:FIRST],
            newest=newest[-NEWEST:],
            step_seconds=None if judged is None else judged.step_seconds,
            states=() if judged is None else unpack(judged.states)["states"],
        )

    def _table(self, connection: Connection, rows: Sequence[Row]) -> Table:
        packed = [(names_id, figures) for _, names_id, figures in rows]
        figures = headlines.columns_of(connection, packed, self._paths, {})
        return Table(np.array([row[0] for row in rows], np.int64), figures)


def _stands(known: Overview, row: Any) -> bool:
    return known.has_revision and known.version == (row.revision, row.last_batch_at)


def _extendable(known: Overview | None, row: Any) -> Overview | None:
    """What can be kept of a run that has changed: nothing while an attempt replays steps that another has left."""
    if known is None or known.attempt != row.attempt or not len(known.drawn.steps):
        return None
    if known.drawn.steps[-1] > min(known.last_step, row.step):
        return None
    return known


def _judgements(connection: Connection, runs: Sequence[int]) -> dict[int, Any]:
    if not runs:
        return {}
    query = select(judgements).where(judgements.c.run_id.in_(runs))
    return {row.run_id: row for row in connection.execute(query)}
