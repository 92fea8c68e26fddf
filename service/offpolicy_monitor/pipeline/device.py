"""Device: the threads that measure, one or a few. Each takes the next job by itself, whoever's turn it is. Where one is
to do something else with what a job gave, another takes its place as soon as there is a job to do.

A job that was begun is always waited for, because it reads a pooled buffer that must not be reused under it; one that
nobody waits for any more is not begun. Made and asked on one event loop; knows neither what is measured nor HTTP.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from offpolicy_monitor.pipeline.gone import Gone, client_gone, is_gone
from offpolicy_monitor.pipeline.thread_stack import ThreadStack
from offpolicy_monitor.pipeline.turns import Turn, Turns
from offpolicy_monitor.pipeline.workers import Ages, guarded, settle

Result = TypeVar("Result")
#: Who goes on with what a job gave, on the device's thread, and sees to the future that is waited for.
Then = Callable[[Any, "asyncio.Future[Any]"], None]


@dataclass(eq=False)
class _Job:
    work: Callable[[], Any]
    done: "asyncio.Future[Any]"
    then: Then
    ended: "asyncio.Future[None] | None" = None
    """Made by one who waits for nothing but the end."""
    is_over: bool = False


class Device:
    """Runs from the first job to `close`, `threads` jobs at a time at most."""

    def __init__(self, turns: "Turns[_Job]", threads: int = 1) -> None:
        self.ages = Ages()
        self._turns, self._most = turns, threads
        self._loop = asyncio.get_running_loop()
        self._stack = ThreadStack()
        self._lock = threading.Lock()
        #: Threads that are not elsewhere.
        self._here = set[threading.Thread]()
        self._closed = False

    async def run(
        self,
        lane: str,
        size: int,
        work: Callable[[], Result],
        gone: Gone | None = None,
        *,
        begun: bool = False,
        then: Then | None = None,
    ) -> Any:
        """What `work()` gives, or with `then` what that makes of it; errors of either are raised here.

        Raises Unavailable (503) at once where the wait is expected to be too long, unless it is for the next part of
        what has `begun`, and the Refusal of `client_gone` as soon as nobody waits for the answer any more.
        """
        if is_gone(gone):
            raise client_gone()
        job = _Job(work, self._loop.create_future(), then or self.give)
        turn = self._turns.enter(lane, size, job, begun)
        entered = self.ages.enter()
        left = partial(self._left, turn)
        if gone is not None:
            gone.add_done_callback(left)
        self._stack.came()
        self._see_to_jobs()
        try:
            return await job.done
        except asyncio.CancelledError:
            await self._end_of(turn)
            raise
        finally:
            self.ages.leave(entered)
            if gone is not None:
                gone.remove_done_callback(left)
            del job, turn, left  # their future's error leads to this frame

    def close(self) -> None:
        """Finish what came and end the threads; one that is elsewhere is left to itself."""
        with self._lock:
            self._closed = True
        self._stack.end()
        self._see_to_jobs()
        while threads := self._all_here():
            for thread in threads:
                thread.join()

    @property
    def is_alone(self) -> bool:
        """Whether no job is waited for but one."""
        return len(self.ages) <= 1

    @contextmanager
    def elsewhere(self) -> Iterator[None]:
        """For `then`: what is done inside is no work of the device, which goes on without this thread where it must."""
        thread = threading.current_thread()
        with self._lock:
            self._here.remove(thread)
        self._see_to_jobs()
        try:
            yield
        finally:
            with self._lock:
                if len(self._here) < self._most and not self._closed:
                    self._here.add(thread)

    def _all_here(self) -> list[threading.Thread]:
        with self._lock:
            return list(self._here)

    def _see_to_jobs(self) -> None:
        """Have one more thread where a job waits that none is free for, as far as there may be more."""
        with self._lock:
            if self._stack.untaken and len(self._here) < self._most:
                thread = threading.Thread(target=self._work, name="measure", daemon=True)
                self._here.add(thread)
                try:
                    thread.start()
                except RuntimeError:  # the system has no more: those that there are go on
                    self._here.remove(thread)
                    if not self._here:
                        raise

    def _left(self, turn: Turn[_Job], _gone: Gone) -> None:
        """Nobody waits for the answer: the job is not begun."""
        if self._turns.leave(turn) and not turn.job.done.done():
            turn.job.done.set_exception(client_gone())

    async def _end_of(self, turn: Turn[_Job]) -> None:
        """Return once the job will not be run, or has been."""
        if self._turns.leave(turn):
            return
        with self._lock:
            if turn.job.is_over:
                return
            turn.job.ended = self._loop.create_future()
        await turn.job.ended

    def _work(self) -> None:
        thread = threading.current_thread()
        while thread in self._here and self._stack.next_came():
            self._see_to_jobs()
            self._do_next()
        with self._lock:
            self._here.discard(thread)

    def _do_next(self) -> None:
        """Nothing of a job is left when this returns."""
        turn = self._turns.next()
        if turn is None:
            return
        job = turn.job
        began = time.perf_counter()
        try:
            go_on = partial(job.then, guarded(job.work), job.done)
        except Exception as error:
            go_on = partial(self.give, error, job.done)
        self._turns.took(turn, time.perf_counter() - began)
        with self._lock:
            job.is_over = True
            if job.ended is not None:
                settle(self._loop, [(job.ended, None)])
        # Last: whoever goes on with it wakes at once, and would wait for the interpreter's lock meanwhile.
        try:
            go_on()
        except Exception as error:
            self.give(error, job.done)
        finally:
            del go_on

    def give(self, given: Any, done: "asyncio.Future[Any]") -> None:
        """Give what a job gave, or the error that it ended with, to who waits for it."""
        settle(self._loop, [(done, given)])
