"""Histories: the figures that a run's training steps were judged by, as columns; kept until a step is judged again.

Rules look back over hundreds of steps, of which one is new. What is kept of a step is known by the checksum of its
figures, so that another process's write, or a transaction that failed, can leave nothing wrong here.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, Select, bindparam, select

from offpolicy_monitor.store.codec import unpack
from offpolicy_monitor.store.tables import judged_steps

#: The steps that rules see: the first ones for the run's baseline, and the newest.
FIRST, NEWEST = 26, 300
#: Runs kept at once; the one that was judged longest ago goes first. About 100 KB each.
MOST_RUNS = 256

#: What tells one content of a judged step from another: step, attempt, and the checksum of its figures.
Version = tuple[int, ...]
_VERSION: Final = (judged_steps.c.step, judged_steps.c.attempt, judged_steps.c.checksum)


@dataclass(frozen=True, eq=False)
class RunHistory:
    """steps [n], ascending; columns: path -> [n] float64, NaN where a step lacks the figure."""

    steps: Sequence[int]
    columns: Mapping[str, NDArray[np.float64]]


class Histories:
    """Histories by run id; `paths` are the figures wanted. Used by one thread at once."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._places = {path: place for place, path in enumerate(paths)}
        self._kept: OrderedDict[int, dict[Version, NDArray[np.float64]]] = OrderedDict()

    def read(self, connection: Connection, run: int) -> RunHistory:
        """The first and the newest training steps that were judged, ascending."""
        # Plain tuples: rows of SQLAlchemy take three times as long to compare.
        rows = {tuple(row) for window in (_OLDEST, _NEWEST) for row in connection.execute(window, {"run": run})}
        wanted = sorted(rows)
        known = self._kept.pop(run, {})
        known |= self._load(connection, run, [row for row in wanted if row not in known])
        self._kept[run] = {row: known[row] for row in wanted}
        while len(self._kept) > MOST_RUNS:
            self._kept.popitem(last=False)
        table = np.array([known[row] for row in wanted]).reshape(len(wanted), len(self._places))
        columns = {path: table[:, place] for path, place in self._places.items()}
        return RunHistory([step for step, *_ in wanted], columns)

    def _load(self, connection: Connection, run: int, rows: Sequence[Version]) -> dict[Version, NDArray[np.float64]]:
        if not rows:
            return {}
        wanted = (judged_steps.c.run_id == run) & judged_steps.c.step.in_([step for step, *_ in rows])
        query = select(*_VERSION, judged_steps.c.figures).where(wanted)
        return {(*version,): self._vector(unpack(figures)) for *version, figures in connection.execute(query)}

    def _vector(self, figures: Mapping[str, float]) -> NDArray[np.float64]:
        """Figures by path as a row; of paths that nobody wants any more nothing is kept."""
        vector = np.full(len(self._places), np.nan)
        for path, value in figures.items():
            if path in self._places:
                vector[self._places[path]] = value
        return vector


def _window() -> Select[Any]:
    """Steps up to the newest one of the newest attempt: those beyond it are of an attempt that was given up."""
    of_run = judged_steps.c.run_id == bindparam("run")
    newest = (judged_steps.c.attempt.desc(), judged_steps.c.step.desc())
    latest = select(judged_steps.c.step).where(of_run).order_by(*newest).limit(1).scalar_subquery()
    return select(*_VERSION).where(of_run, judged_steps.c.step <= latest)


# Made once: putting a statement together takes as long as running it.
_OLDEST: Final = _window().order_by(judged_steps.c.step).limit(FIRST)
_NEWEST: Final = _window().order_by(judged_steps.c.step.desc()).limit(NEWEST)
