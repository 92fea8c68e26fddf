"""Follower: hands every step of a run to a logger, once, in order, as the service has judged it.

It asks the service on a thread and a connection of its own: what a logger takes to write, or an outage of either, holds
up no shard, and steps wait in the service, not here. A step is handed over when it has its verdict, with which its
figures are final but for late shards. Knows the answers of the service, and nothing of what is logged where.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from offpolicy_monitor.client.connection import Connection
from offpolicy_monitor.client.loggers.kinds import Logger
from offpolicy_monitor.client.loggers.names import Names, flat, named
from offpolicy_monitor.client.read import asked

#: Steps of one question.
PAGE: Final = 100
#: Seconds between two questions: at least, at most where nothing comes, and while somebody waits for the last steps.
PAUSE, LONGEST, HURRIED = 1.0, 10.0, 0.1
#: Seconds for which the last steps are waited for: shards of other ranks may be missing, or minibatches.
LAST: Final = 2.0
#: Newer steps that are there, with which one does not wait for its logger any more; and how often the logger is asked
#: whether it is ready before the service is asked for newer ones.
NEWER: Final = 2
LOOKS: Final = 10
#: What an answer has at most.
ANSWER_BYTES: Final = 16 << 20

Row = Mapping[str, Any]


class Follower:
    """Follows the run at `path` and writes its steps to `logger`, under `names`; `trouble` is told what goes wrong.

    It begins with the first step that `stored` names and goes as far as the last one: those that this process posts. A
    follower of the whole run (`for_run`) begins at once, behind the steps that are there, and goes as far as the run.
    """

    def __init__(
        self,
        connection: Connection,
        path: str,
        logger: Logger,
        names: Names,
        trouble: Callable[[str], None],
        for_run: bool = False,
    ) -> None:
        self._connection, self._path = connection, path
        self._logger, self._names, self._trouble = logger, names, trouble
        self._for_run = for_run
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._next: int | None = None
        self._posted, self._attempt = -1, 0
        self._held: int | None = None
        self._looks = self._waiters = 0
        self._is_current = self._is_hurried = self._is_closed = False
        if for_run:
            self._start()

    def stored(self, step: int) -> None:
        """A shard of a step is stored."""
        with self._changed:
            self._next = step if self._next is None else self._next
            self._posted = max(self._posted, step)
            self._is_current = self._is_current and self._next > self._posted
            self._start()
            self._changed.notify_all()

    def settle(self, seconds: float) -> None:
        """Wait until the last step is handed over, for at most so many seconds; what is not there by then is left."""
        with self._changed:
            if self._thread is None or self._is_closed:
                return
            self._is_hurried, self._is_current = True, self._is_current and not self._for_run
            self._waiters += 1
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._is_current, max(0.0, min(seconds, LAST)))
            self._is_hurried, self._is_current = False, True

    def close(self, seconds: float) -> None:
        """Hand over what is still to come, for at most so many seconds, and end."""
        end = time.monotonic() + seconds
        self.settle(seconds)
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(max(0.0, min(end - time.monotonic(), LAST)))

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="offpolicy-monitor-log-to", daemon=True)
            self._thread.start()

    def _work(self) -> None:
        pause = 0.0
        while self._rested(pause):
            found, waiters = 0, self._waiters
            try:
                found = self._handed_over()
            except Exception as error:  # the thread's boundary: whatever went wrong, training goes on
                self._trouble(f"{type(error).__name__}: {error}")
            with self._changed:
                behind = self._next is None or self._next <= self._posted
                # Of the whole run an answer says that there is nothing more, if it was asked for since somebody waits.
                self._is_current = not found and waiters == self._waiters if self._for_run else not behind
                self._changed.notify_all()
            pause = PAUSE if found or self._held is not None else min(LONGEST, 2 * pause or PAUSE)
        self._connection.close()

    def _rested(self, pause: float) -> bool:
        """Sleep until there is something to ask for, and no question is too soon; False at the end."""
        with self._changed:
            begun = time.monotonic()
            self._changed.wait_for(lambda: self._is_closed or self._for_run or not self._is_current)
            left = begun + pause - time.monotonic()
            self._changed.wait_for(lambda: self._is_closed or self._is_hurried, max(0.0, left))
            if self._is_hurried and pause:
                self._changed.wait_for(lambda: self._is_closed, HURRIED)
            return not self._is_closed

    def _handed_over(self) -> int:
        """How many steps were handed over now."""
        if self._waits_for_logger():
            return 0
        if self._next is None:
            self._next = self._behind_the_run()
        query = {"detail": "headline", "from": self._next, "to": None if self._for_run else self._posted, "limit": PAGE}
        answer = self._answer(f"{self._path}/steps{asked(query)}")
        rows = self._judged(answer.get("steps", ()))
        figures = {row["step"]: flat(row) for row in rows}
        self._complete(figures)
        for index, row in enumerate(rows):
            if not (self._is_hurried or len(rows) - index > NEWER or self._logger.is_ready(row["step"])):
                self._held = row["step"]
                return index
            self._held, self._next = None, row["step"] + 1
            self._write(row, figures[row["step"]])
        return len(rows)

    def _waits_for_logger(self) -> bool:
        if self._held is None or self._is_hurried or self._logger.is_ready(self._held):
            return False
        self._looks += 1
        return self._looks % LOOKS != 0

    def _write(self, row: Row, figures: Mapping[str, float]) -> None:
        try:
            self._logger.write(row["step"], named(figures, row["verdict"], self._names), row["verdict"])
        except Exception as error:  # a boundary: the logger is the trainer's
            self._trouble(f"{type(error).__name__}: {error}")

    def _complete(self, figures: Mapping[int, dict[str, float]]) -> None:
        """Add to the figures of some steps those that a framework has a name for and that are no headline."""
        fields = sorted(self._names.keys() - {path for of_step in figures.values() for path in of_step})
        if not figures or not fields:
            return
        columns = self._answer(
            f"{self._path}/series{asked({'field': fields, 'from': min(figures), 'to': max(figures), 'by': 'step'})}"
        )
        for column in columns.get("series", [columns]):
            for step, value in zip(column["step"], column["value"], strict=True):
                if value is not None and step in figures:
                    figures[step][column["field"]] = value

    def _judged(self, rows: Sequence[Row]) -> Sequence[Row]:
        """The rows that are final: those up to the last one with a verdict, and of an attempt that stands.

        Steps of an attempt that was given up, which lie beyond those of the newest one, are to be replaced yet.
        """
        standing = []
        for row in rows:
            if row["attempt"] < self._attempt:
                break
            self._attempt = row["attempt"]
            standing.append(row)
        judged = [index for index, row in enumerate(standing) if row["verdict"] is not None]
        return standing[: judged[-1] + 1] if judged else standing if len(standing) == PAGE else []

    def _behind_the_run(self) -> int:
        last = self._answer(self._path).get("last_step")
        return 0 if last is None else int(last) + 1

    def _answer(self, path: str) -> Row:
        """What the service says; empty where it does not know the run yet. Raises ConnectionError for a refusal."""
        answer = self._connection.exchange("GET", path, most=ANSWER_BYTES)
        if answer.status not in (200, 404):
            raise ConnectionError(answer.detail)
        return answer.document if answer.status == 200 else {}
