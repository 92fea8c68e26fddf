"""Settled: figures of all settled steps of a run in columns, kept from one reading to the next.

A plot of a hundred thousand steps reads some twenty megabytes of spans, to which a run adds one every few hundred
steps: what was read stays, and the next reading adds what came since. Which spans stand is asked of the database each
time (rows.spans). One that does, and is of the same steps and as many rows, has the same figures.
"""

import threading
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from sqlalchemy import Connection, select

from offpolicy_monitor.store.rows import spans
from offpolicy_monitor.store.rows.spans import Covered, Numbers, Standing
from offpolicy_monitor.store.rows.step_index import StepIndex
from offpolicy_monitor.store.rows.tables import runs

#: Bytes kept: what the page of a run of 100,000 steps draws takes 25 MB.
MOST: Final = 1 << 26


@dataclass(frozen=True)
class _Kept:
    """The spans of a run from its first one on, as columns; `created_at` tells it from a later run with its id."""

    created_at: float
    of: Sequence[Standing] = ()
    index: StepIndex = field(default_factory=StepIndex.none)
    figures: Mapping[str, Numbers] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        return self.index.nbytes + sum(column.nbytes for column in self.figures.values() if spans.takes_room(column))


class Settled:
    """By run id; `most` bytes, of which the runs that were read longest ago go first. Safe to share between threads."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._kept: OrderedDict[int, _Kept] = OrderedDict()
        self._lock = threading.Lock()

    def read(
        self, connection: Connection, run: int, names: Sequence[str], first: int | None = None, last: int | None = None
    ) -> Covered:
        """As `spans.read`; of a whole run what is kept is not read again."""
        if first is None and last is None:
            return self._whole(connection, run, names)
        return spans.read(connection, run, first, last, names)

    def _whole(self, connection: Connection, run: int, names: Collection[str]) -> Covered:
        created_at = connection.execute(select(runs.c.created_at).where(runs.c.id == run)).scalar_one()
        standing = spans.standing(connection, run)
        with self._lock:
            known = self._kept.get(run)
        if known is None or known.created_at != created_at or standing[: len(known.of)] != known.of:
            known = _Kept(created_at)
        known = _with_later(connection, run, _with_names(connection, run, known, names), standing)
        self._keep(run, known)
        return Covered(standing[-1][1] if standing else -1, known.index, {name: known.figures[name] for name in names})

    def _keep(self, run: int, known: _Kept) -> None:
        with self._lock:
            self._kept[run] = known
            self._kept.move_to_end(run)
            while sum(each.nbytes for each in self._kept.values()) > self._most:
                self._kept.popitem(last=False)


def _with_names(connection: Connection, run: int, known: _Kept, names: Collection[str]) -> _Kept:
    """With figures of the same spans that nobody asked for before."""
    new = [name for name in names if name not in known.figures]
    if not new:
        return known
    figures = spans.columns(connection, run, known.of, new).figures
    return replace(known, figures={**known.figures, **figures})


def _with_later(connection: Connection, run: int, known: _Kept, standing: Sequence[Standing]) -> _Kept:
    """With the spans that came since."""
    later = standing[len(known.of) :]
    if not later:
        return known
    added = spans.columns(connection, run, later, list(known.figures))
    figures = {name: spans.joined([column, added.figures[name]]) for name, column in known.figures.items()}
    return replace(known, of=standing, index=StepIndex.joined([known.index, added.index]), figures=figures)
