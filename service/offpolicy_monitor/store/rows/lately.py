"""Lately: what was read of runs a moment ago, for those who ask the same again while the run stands still.

A page asks several things of the same two hundred summaries at once. What is kept stands while the run has the revision
that it was read under (rows.held); of a run that an older release wrote nothing is kept. Of a run that has moved what
was asked lately can be read again before anybody asks (server.fresh).
"""

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Generic, TypeVar

from sqlalchemy import Connection, select

from offpolicy_monitor import interpreter
from offpolicy_monitor.store.rows.tables import runs

Answer = TypeVar("Answer")
#: Reads an answer by a connection.
Work = Callable[[Connection], Answer]
#: Seconds that one who asks the same waits for who is reading it; then it is read twice.
LONGEST: Final = 0.5
#: Questions that may be read at once; two that fall on one of these wait for each other.
AT_ONCE: Final = 16


@dataclass(frozen=True)
class _Kept(Generic[Answer]):
    """An answer about a run that had the revision `under`, and what answers it `again`; somebody wanted it last at
    `asked_at`, by the monotonic clock."""

    under: int
    answer: Answer
    again: Work[Answer]
    asked_at: float


class Lately(Generic[Answer]):
    """The newest `most` answers, by run id and question, which nobody may change. Safe to share between threads."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: OrderedDict[tuple[int, Hashable], _Kept[Answer]] = OrderedDict()
        self._lock, self._reading = threading.Lock(), [threading.Lock() for _ in range(AT_ONCE)]

    def read(self, connection: Connection, run: int, asked: Hashable, work: Work[Answer]) -> Answer:
        """What is kept, or what the work reads of this snapshot."""
        return self.of(run, revision(connection, run), asked, partial(work, connection), work)

    def of(
        self, run: int, under: int | None, asked: Hashable, work: Callable[[], Answer], again: Work[Answer]
    ) -> Answer:
        """What is kept of a run that has this revision, or what the work answers of it or of a later one; `again` does
        the same later."""
        if under is None:
            return work()
        reading = self._reading[hash((run, asked)) % AT_ONCE]
        first = reading.acquire(blocking=False)
        if not first:
            with interpreter.waiting():
                first = reading.acquire(timeout=LONGEST)
        try:
            with self._lock:
                known = self._kept.get((run, asked))
            now = time.monotonic()
            if known is None or known.under != under:
                known = _Kept(under, work(), again, now)
            self._keep(run, asked, replace(known, asked_at=now))
            return known.answer
        finally:
            if first:
                reading.release()

    def asked_since(self, since: float) -> Mapping[int, set[int]]:
        """The runs of which something was asked since then, by the monotonic clock, and under which revisions."""
        found: dict[int, set[int]] = {}
        with self._lock:
            for (run, _), known in self._kept.items():
                if known.asked_at >= since:
                    found.setdefault(run, set()).add(known.under)
        return found

    def unasked(self) -> None:
        """What is kept was asked by nobody who may ask again."""
        with self._lock:
            for question, known in self._kept.items():
                self._kept[question] = replace(known, asked_at=-math.inf)

    def again(self, connection: Connection, run: int, since: float, most: int) -> None:
        """Read anew what was asked of a run since then, where the run has moved: the newest `most` questions. Other
        answers of before are kept no longer, and none that cannot be read any more, which is raised."""
        under = revision(connection, run)
        with self._lock:
            moved = [
                (asked, known) for (its, asked), known in self._kept.items() if its == run and known.under != under
            ]
            wanted = [(asked, known) for asked, known in moved if known.asked_at >= since and under is not None][-most:]
            for asked, _ in moved:
                if asked not in dict(wanted):
                    del self._kept[run, asked]
        for asked, known in wanted:
            reading = self._reading[hash((run, asked)) % AT_ONCE]
            if not reading.acquire(blocking=False):
                continue  # somebody asks just now
            try:
                assert under is not None
                self._keep(run, asked, replace(known, under=under, answer=known.again(connection)))
            except BaseException:
                with self._lock:
                    self._kept.pop((run, asked), None)
                raise
            finally:
                reading.release()

    def _keep(self, run: int, asked: Hashable, known: _Kept[Answer]) -> None:
        with self._lock:
            self._kept[run, asked] = known
            self._kept.move_to_end((run, asked))
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)


def revision(connection: Connection, run: int) -> int | None:
    """The revision of a run, of one that an older release wrote None."""
    found: int | None = connection.execute(select(runs.c.revision).where(runs.c.id == run)).scalar_one()
    return found
