"""Histories: the figures of a run's steps that its rules look at, as columns; read once and kept until a step changes.

Rules look back over hundreds of steps, of which one is new. What is kept of a step is known by all that a change of its
figures changes, so that another process's write, or a transaction that failed, can leave nothing wrong here.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, Select, bindparam, select

from offpolicy_monitor.store.step_rows import is_last_minibatch
from offpolicy_monitor.store.tables import OPEN, metrics, steps

#: The steps that rules see: the first ones for the run's baseline, and the newest.
FIRST, NEWEST = 26, 300
#: Runs kept at once; the one that was judged longest ago goes first. About 100 KB each.
MOST_RUNS = 256

#: What tells one content of a step's figures from another: a row of the columns that change with them.
Version = tuple[Any, ...]
ID, STEP, POLICY_VERSION = 0, 1, 2
_VERSION: Final = (
    *(steps.c.id, steps.c.step, steps.c.policy_version),
    *(steps.c.minibatch, steps.c.attempt, steps.c.merged, steps.c.state, steps.c.last_received_at),
)


@dataclass(frozen=True, eq=False)
class RunHistory:
    """steps [n], ascending; columns: path -> [n] float64, NaN where a step lacks the figure."""

    steps: Sequence[int]
    columns: Mapping[str, NDArray[np.float64]]


class Histories:
    """Histories by run id; `paths` are the headline figures wanted, and `policy_version`.

    Used by one thread at once.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        self._places = {path: place for place, path in enumerate(paths)}
        self._kept: OrderedDict[int, dict[Version, NDArray[np.float64]]] = OrderedDict()

    def read(self, connection: Connection, run: int) -> RunHistory:
        """The first and the newest steps that count, ascending, each with its last gradient step."""
        rows = [tuple(row) for window in (_OLDEST, _NEWEST) for row in connection.execute(window, {"run": run})]
        wanted = dict(sorted((row[STEP], row) for row in rows))
        known = self._kept.pop(run, {})
        known |= self._load(connection, [row for row in wanted.values() if row not in known])
        self._kept[run] = {row: known[row] for row in wanted.values()}
        while len(self._kept) > MOST_RUNS:
            self._kept.popitem(last=False)
        table = np.array([known[row] for row in wanted.values()]).reshape(len(wanted), len(self._places))
        return RunHistory(list(wanted), {path: table[:, place] for path, place in self._places.items()})

    def _load(self, connection: Connection, rows: Sequence[Version]) -> dict[Version, NDArray[np.float64]]:
        loaded = {row: np.full(len(self._places), np.nan) for row in rows}
        of_id = {row[ID]: loaded[row] for row in rows}
        wanted = metrics.c.step_id.in_(of_id) & metrics.c.metric.in_(list(self._places))
        query = select(metrics.c.step_id, metrics.c.metric, metrics.c.value).where(wanted)
        for step_id, metric, value in connection.execute(query) if rows else ():
            of_id[step_id][self._places[metric]] = value
        place = self._places.get("policy_version")
        for row, values in loaded.items():
            if place is not None and row[POLICY_VERSION] is not None:
                values[place] = row[POLICY_VERSION]
        return loaded


def _window() -> Select[Any]:
    """Steps up to the newest one of the newest attempt: those beyond it are of an attempt that was given up."""
    counting = (steps.c.run_id == bindparam("run"), ~steps.c.superseded, steps.c.state != OPEN)
    latest = select(steps.c.step).where(*counting).order_by(steps.c.attempt.desc(), steps.c.step.desc()).limit(1)
    return select(*_VERSION).where(*counting, is_last_minibatch(), steps.c.step <= latest.scalar_subquery())


# Made once: putting a statement together takes as long as running it.
_OLDEST: Final = _window().order_by(steps.c.step).limit(FIRST)
_NEWEST: Final = _window().order_by(steps.c.step.desc()).limit(NEWEST)
