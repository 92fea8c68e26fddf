"""Histories: the figures that a run's training steps were judged by, as columns; kept until a step is judged again.

Rules look back over hundreds of steps, of which one is new: it is added to the columns, and one short query tells by
count and checksums whether these are what is stored. So another process's write, or a transaction that failed, can
leave nothing wrong here.
"""

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, bindparam, func, select

from offpolicy_monitor.store.rows.codec import unpack
from offpolicy_monitor.store.rows.cursors import LARGEST_INTEGER
from offpolicy_monitor.store.rows.tables import judged_steps

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


@dataclass(frozen=True, eq=False)
class _Kept:
    """What is known of a run: versions [n], ascending; table [paths, n] float64."""

    versions: list[Version]
    table: NDArray[np.float64]

    def bounds(self) -> dict[str, int]:
        """The steps that its two windows end and begin with; nothing lies between them while all steps are in them."""
        if len(self.versions) < FIRST + NEWEST:
            return {"first": LARGEST_INTEGER, "newest": LARGEST_INTEGER}
        return {"first": self.versions[FIRST - 1][0], "newest": self.versions[FIRST][0]}

    def stands(self, latest: int, count: int, checksums: int) -> bool:
        """Whether this is what is stored: as many steps with these figures, up to this one."""
        versions = self.versions
        return latest == versions[-1][0] and (count, checksums) == (len(versions), sum(row[2] for row in versions))

    def with_step(self, version: Version, figures: NDArray[np.float64]) -> "_Kept | None":
        """With one more step, the newest, or with other figures of one that it has; None where it lies between."""
        steps = [step for step, *_ in self.versions]
        if version[0] > steps[-1]:
            first, rest = slice(0, FIRST), slice(FIRST + (len(steps) == FIRST + NEWEST), None)
            table = np.concatenate([self.table[:, first], self.table[:, rest], figures[:, None]], axis=1)
            return _Kept([*self.versions[first], *self.versions[rest], version], table)
        place = bisect_left(steps, version[0])
        if steps[place] != version[0]:
            return None
        table = self.table.copy()
        table[:, place] = figures
        return _Kept([*self.versions[:place], version, *self.versions[place + 1 :]], table)


class Histories:
    """Histories by run id; `paths` are the figures wanted. Used by one thread at once."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._places = {path: place for place, path in enumerate(paths)}
        self._kept: OrderedDict[int, _Kept] = OrderedDict()

    def add(self, run: int, version: Version, figures: Mapping[str, float]) -> None:
        """A training step of a run is judged by these figures, in place of those that it may have had."""
        kept = self._kept.pop(run, None)
        changed = kept and kept.with_step(version, self._vector(figures))
        if changed:
            self._kept[run] = changed

    def read(self, connection: Connection, run: int) -> RunHistory:
        """The first and the newest training steps that were judged, ascending."""
        kept = self._kept.pop(run, None)
        if kept is None or not self._stands(connection, run, kept):
            kept = self._load(connection, run, kept)
        if not kept.versions:
            return RunHistory([], {})
        self._kept[run] = kept
        while len(self._kept) > MOST_RUNS:
            self._kept.popitem(last=False)
        columns = {path: kept.table[place] for path, place in self._places.items()}
        return RunHistory([step for step, *_ in kept.versions], columns)

    def _stands(self, connection: Connection, run: int, kept: _Kept) -> bool:
        latest, count, checksums = connection.execute(_STANDING, {"run": run, **kept.bounds()}).one()
        return count > 0 and kept.stands(latest, count, int(checksums))

    def _load(self, connection: Connection, run: int, kept: _Kept | None) -> _Kept:
        """What is stored, of which no more is read than is not known."""
        # Plain tuples: rows of SQLAlchemy take three times as long to compare.
        rows = {tuple(row) for window in (_OLDEST, _NEWEST) for row in connection.execute(window, {"run": run})}
        wanted = sorted(rows)
        known = dict(zip(kept.versions, kept.table.T, strict=True)) if kept else {}
        known |= self._read(connection, run, [row for row in wanted if row not in known])
        table = np.array([known[row] for row in wanted]).reshape(len(wanted), len(self._places))
        return _Kept(wanted, np.ascontiguousarray(table.T))

    def _read(self, connection: Connection, run: int, rows: Sequence[Version]) -> dict[Version, NDArray[np.float64]]:
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


def looked_back_on(connection: Connection, run: int) -> set[int]:
    """The training steps of a run that rules see."""
    return {row.step for window in (_OLDEST, _NEWEST) for row in connection.execute(window, {"run": run})}


# Steps up to the newest one of the newest attempt: those beyond it are of an attempt that was given up.
# Statements are made once: putting one together takes as long as running it.
_OF_RUN: Final = judged_steps.c.run_id == bindparam("run")
_LATEST: Final = (
    select(judged_steps.c.step)
    .where(_OF_RUN)
    .order_by(judged_steps.c.attempt.desc(), judged_steps.c.step.desc())
    .limit(1)
    .scalar_subquery()
)
_WINDOW: Final = select(*_VERSION).where(_OF_RUN, judged_steps.c.step <= _LATEST)
_OLDEST: Final = _WINDOW.order_by(judged_steps.c.step).limit(FIRST)
_NEWEST: Final = _WINDOW.order_by(judged_steps.c.step.desc()).limit(NEWEST)
_STANDING: Final = (
    select(_LATEST, func.count(), func.sum(judged_steps.c.checksum))
    .where(_OF_RUN, judged_steps.c.step <= _LATEST)
    .where((judged_steps.c.step <= bindparam("first")) | (judged_steps.c.step >= bindparam("newest")))
)
