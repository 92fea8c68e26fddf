"""Histories: the figures that a run's training steps were judged by, as columns; kept until a step is judged again.

Rules look back over hundreds of steps, of which one is new: it is added to the columns, and one short query tells by
count and checksums whether these are what is stored. So another process's write, or a transaction that failed, can
leave nothing wrong here.
"""

import math
from array import array
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Mapping, MutableSequence, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy import Connection, bindparam, func, select

from offpolicy_monitor.store.rows import training_steps
from offpolicy_monitor.store.rows.cursors import LARGEST_INTEGER
from offpolicy_monitor.store.rows.tables import judged_steps

#: The steps that rules see: the first ones for the run's baseline, and the newest.
FIRST, NEWEST = 26, 300
#: Runs kept at once; the one that was judged longest ago goes first. About 100 KB each.
MOST_RUNS = 256

#: What tells one content of a judged step from another: step, attempt, and the checksum of its figures.
Version = tuple[int, ...]
_OLDEST_OF_NEWEST: Final = slice(FIRST, FIRST + 1)
_VERSION: Final = (judged_steps.c.step, judged_steps.c.attempt, judged_steps.c.checksum)


@dataclass(eq=False)
class RunHistory:
    """versions, steps [n], ascending; columns: path -> [n] float64, NaN where a step lacks the figure; none of a figure
    that no step has.

    noted: [n] by name, what the judge has computed of a step and its past, to be dropped from a step on that changes;
    `terms` are what it was computed under, the judge's own as well.
    """

    versions: list[Version]
    columns: dict[str, "array[float]"]
    noted: dict[str, MutableSequence[Any]] = field(default_factory=dict)
    terms: Any = None

    def __post_init__(self) -> None:
        self.steps = [step for step, *_ in self.versions]

    def put(self, version: Version, figures: Mapping[str, float]) -> bool:
        """Take in one more step, or other figures of one that is here; False where the others may not stand then."""
        index = bisect_left(self.steps, version[0])
        if index < len(self.steps) and self.steps[index] == version[0]:
            self._replace(index, version, figures)
            return True
        if index < len(self.steps) and (version[1] != self.versions[-1][1] or (self._is_full and index <= FIRST)):
            return False  # of another attempt than the newest step's, or one that moves the first ones
        self._insert(index, version, figures)
        return True

    def bounds(self) -> dict[str, int]:
        """The steps that its two windows end and begin with; nothing lies between them while all steps are in them."""
        if not self._is_full:
            return {"first": LARGEST_INTEGER, "newest": LARGEST_INTEGER}
        return {"first": self.steps[FIRST - 1], "newest": self.steps[FIRST]}

    def stands(self, latest: int, count: int, checksums: int) -> bool:
        """Whether this is what is stored: as many steps with these figures, up to this one."""
        return latest == self.steps[-1] and (count, checksums) == (
            len(self.steps),
            sum(row[2] for row in self.versions),
        )

    def figures(self, paths: Sequence[str]) -> dict[Version, tuple[float, ...]]:
        """Of each step, in the order of the paths; NaN where it lacks one."""
        absent = array("d", [math.nan]) * len(self.steps)
        columns = [self.columns.get(path, absent) for path in paths]
        return dict(zip(self.versions, zip(*columns, strict=True), strict=True))

    @property
    def _is_full(self) -> bool:
        return len(self.steps) == FIRST + NEWEST

    def _insert(self, index: int, version: Version, figures: Mapping[str, float]) -> None:
        """A step that is new here, before the one at `index`; what was noted from there on goes."""
        if self._is_full:
            of_step: tuple[MutableSequence[Any], ...] = (self.versions, self.steps, *self.columns.values())
            for column in (*of_step, *self.noted.values()):
                del column[_OLDEST_OF_NEWEST]
            index -= 1
        self._add_columns(figures)
        self.versions.insert(index, version)
        self.steps.insert(index, version[0])
        for path, column in self.columns.items():
            column.insert(index, figures.get(path, math.nan))
        for notes in self.noted.values():
            del notes[index:]

    def _replace(self, index: int, version: Version, figures: Mapping[str, float]) -> None:
        self._add_columns(figures)
        self.versions[index] = version
        for path, column in self.columns.items():
            column[index] = figures.get(path, math.nan)
        for notes in self.noted.values():
            del notes[index:]

    def _add_columns(self, figures: Mapping[str, float]) -> None:
        if not figures.keys() <= self.columns.keys():
            for path in figures.keys() - self.columns.keys():
                self.columns[path] = array("d", [math.nan]) * len(self.steps)


class Histories:
    """Histories by run id; `paths` are the figures wanted. Used by one thread at once."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = paths
        self._kept: OrderedDict[int, RunHistory] = OrderedDict()

    def add(self, run: int, version: Version, figures: Mapping[str, float]) -> bool:
        """A training step of a run is judged by these figures, in place of those that it may have had.

        False where the history of the run must be read again, or was not read yet.
        """
        kept = self._kept.get(run)
        if kept is None:
            return False
        self._kept.move_to_end(run)
        return kept.put(version, figures)

    def read(self, connection: Connection, run: int) -> RunHistory:
        """The first and the newest training steps that were judged, ascending."""
        kept = self._kept.pop(run, None)
        if kept is None or not self._stands(connection, run, kept):
            kept = self._load(connection, run, kept)
        if kept.steps:
            self._kept[run] = kept
        while len(self._kept) > MOST_RUNS:
            self._kept.popitem(last=False)
        return kept

    def _stands(self, connection: Connection, run: int, kept: RunHistory) -> bool:
        latest, count, checksums = connection.execute(_STANDING, {"run": run, **kept.bounds()}).one()
        return count > 0 and kept.stands(latest, count, int(checksums))

    def _load(self, connection: Connection, run: int, kept: RunHistory | None) -> RunHistory:
        """What is stored, of which no more is read than is not known."""
        # Plain tuples: rows of SQLAlchemy take three times as long to compare.
        windows = (connection.execute(window, {"run": run}) for window in (_OLDEST, _NEWEST))
        rows: set[Version] = {tuple(row) for window in windows for row in window}
        known = kept.figures(self._paths) if kept else {}
        known |= self._read(connection, run, sorted(rows - known.keys()))
        wanted = sorted(rows)
        columns = zip(self._paths, zip(*(known[row] for row in wanted), strict=True), strict=True) if wanted else ()
        return RunHistory(wanted, {p: array("d", column) for p, column in columns if not all(map(math.isnan, column))})

    def _read(self, connection: Connection, run: int, rows: Sequence[Version]) -> dict[Version, tuple[float, ...]]:
        """The figures of steps, in the order of the paths; of paths that nobody wants any more nothing is kept."""
        if not rows:
            return {}
        of_step = training_steps.figures_of(connection, run, [step for step, *_ in rows])
        return {
            version: tuple(of_step[version[0]].get(path, math.nan) for path in self._paths)
            for version in rows
            if version[0] in of_step
        }


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
