"""Worker: a bounded set of threads for one stage that computes outside the event loop.

A job that was started is always waited for, because it reads a pooled buffer that must not be reused under it. Whatever
a job raises, its caller is told.
"""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import CancelledError, ThreadPoolExecutor
from typing import Any, TypeVar

from offpolicy_monitor.errors import Refusal, Unavailable

Result = TypeVar("Result")


class JobError(Exception):
    """A job ended with something that is no ordinary error (the cause): its request fails, and nothing else."""


class Ages:
    """How long the jobs of one stage have been in it. For every thread: each step on the table of jobs is one."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since: dict[object, float] = {}

    def __len__(self) -> int:
        """How many jobs are in it."""
        return len(self._since)

    def enter(self, job: object = None) -> object:
        """A job comes in; `leave` takes what this answers: the job itself, or what stands for it."""
        job = object() if job is None else job
        self._since[job] = self._clock()
        return job

    def leave(self, job: object) -> None:
        """A job is finished, whatever came of it."""
        self._since.pop(job, None)

    def count(self, job: Callable[[], Result]) -> Result:
        """What `job()` returns, by `guarded`; it is in the stage until it ends, though nobody waits for it any more."""
        entered = self.enter()
        try:
            return guarded(job)
        finally:
            self.leave(entered)

    def older(self, seconds: float) -> list[object]:
        """The jobs that have been in it for at least so long."""
        since = self._clock() - seconds
        return [job for job, entered in list(self._since.items()) if entered <= since]

    def oldest(self) -> float:
        """Seconds since the oldest job that is not finished came in; 0 where there is none."""
        # A copy in one step: others go on adding and removing.
        began = list(self._since.values())
        return self._clock() - min(began) if began else 0.0


class Worker:
    """`threads` threads named after the stage; at most `depth` jobs wait or run, later ones wait in order."""

    def __init__(self, stage: str, threads: int = 1, depth: int = 64) -> None:
        self.ages = Ages()
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix=stage)
        self._slots = asyncio.Semaphore(depth)

    async def run(self, job: Callable[[], Result]) -> Result:
        """The result of `job()` computed in a thread of this stage; its errors are raised here."""
        entered = self.ages.enter()
        try:
            async with self._slots:
                return await self._run(job)
        finally:
            self.ages.leave(entered)

    async def _run(self, job: Callable[[], Result]) -> Result:
        done = asyncio.get_running_loop().run_in_executor(self._executor, lambda: guarded(job))
        try:
            return await asyncio.shield(done)
        except asyncio.CancelledError:
            await asyncio.wait([done])
            raise

    def close(self) -> None:
        """Finish what was started and end the threads."""
        self._executor.shutdown(wait=True)


def guarded(job: Callable[[], Result]) -> Result:
    """What `job` returns; whatever it raises comes out as an error that a future holds and an event loop survives."""
    try:
        return job()
    except BaseException as error:
        if is_ordinary(error):
            raise
        raise JobError(f"a job ended with {type(error).__name__}") from error


def is_ordinary(error: BaseException) -> bool:
    """Whether a future can hold an error and hand it on as what it is.

    No future holds a StopIteration; a cancellation or SystemExit would be taken for the caller's own.
    """
    return isinstance(error, Exception) and not isinstance(error, (StopIteration, CancelledError))


def settle(loop: asyncio.AbstractEventLoop, answers: "list[tuple[asyncio.Future[Any], Any]]") -> None:
    """Give each future its value or its error, from any thread, in one turn of the loop.

    One that has an end already keeps it; a loop that is gone has nobody left to answer.
    """
    if not loop.is_closed():
        loop.call_soon_threadsafe(_settled, answers)


def _alone(error: BaseException) -> BaseException:
    """An error; one that is expected without the frames that raised it, which nobody looks at.

    They lead to the request and its future, and that to the error: all of it would wait for the collector of garbage,
    some hundred KiB per request, while a database is away.
    """
    if isinstance(error, (Refusal, Unavailable)):
        error.__cause__ = error.__context__ = None
        return error.with_traceback(None)
    return error


def _settled(answers: "list[tuple[asyncio.Future[Any], Any]]") -> None:
    for done, answer in answers:
        if done.done():
            continue
        if isinstance(answer, BaseException):
            done.set_exception(_alone(answer))
        else:
            done.set_result(answer)
