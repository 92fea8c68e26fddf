"""Lately: what was read of runs a moment ago, for those who ask the same again while the run stands still.

A page asks several things of the same two hundred summaries at once. What is kept stands while the run has the revision
that it was read under (rows.held); of a run that an older release wrote nothing is kept.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

from sqlalchemy import Connection, select

from offpolicy_monitor import interpreter
from offpolicy_monitor.store.rows.tables import runs

Answer = TypeVar("Answer")
#: Seconds that one who asks the same waits for who is reading it; then it is read twice.
LONGEST: Final = 0.5
#: Questions that may be read at once; two that fall on one of these wait for each other.
AT_ONCE: Final = 16


class Lately(Generic[Answer]):
    """The newest `most` answers, by run id and question, which nobody may change. Safe to share between threads."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: OrderedDict[tuple[int, Hashable], tuple[int, Answer]] = OrderedDict()
        self._lock, self._reading = threading.Lock(), [threading.Lock() for _ in range(AT_ONCE)]

    def read(self, connection: Connection, run: int, asked: Hashable, work: Callable[[], Answer]) -> Answer:
        """What is kept, or what the work reads of this snapshot."""
        return self.of(run, revision(connection, run), asked, work)

    def of(self, run: int, under: int | None, asked: Hashable, work: Callable[[], Answer]) -> Answer:
        """What is kept of a run that has this revision, or what the work answers of it or of a later one."""
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
            if known is None or known[0] != under:
                known = under, work()
            with self._lock:
                self._kept[run, asked] = known
                self._kept.move_to_end((run, asked))
                while len(self._kept) > self._most:
                    self._kept.popitem(last=False)
            return known[1]
        finally:
            if first:
                reading.release()


def revision(connection: Connection, run: int) -> int | None:
    """The revision of a run, of one that an older release wrote None."""
    found: int | None = connection.execute(select(runs.c.revision).where(runs.c.id == run)).scalar_one()
    return found
