"""Readers: threads that ask the store, and do nothing else, so that a store that hangs keeps no other work waiting.

Nobody waits for them without end: the answer is Unavailable then, and what has not begun never does.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TypeVar

from offpolicy_monitor.errors import Unavailable
from offpolicy_monitor.interpreter import computing
from offpolicy_monitor.pipeline.workers import Ages

Result = TypeVar("Result")


class Readers:
    """`threads` threads named after the stage.

    A job begins within so many seconds. Where `whole` is set it is answered within them too; else whoever waits for a
    job that has begun waits for its end, which is for jobs that compute with what they read: one at a time does.
    """

    def __init__(self, stage: str, threads: int, seconds: float, whole: bool = False) -> None:
        self.ages = Ages()
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix=stage)
        self._seconds, self._whole = seconds, whole
        self._computing: Callable[[], AbstractContextManager[None]] = nullcontext if whole else computing

    async def run(self, job: Callable[[], Result]) -> Result:
        """The result of `job()`; its errors are raised here, and Unavailable where it takes too long."""
        entered = self.ages.enter()
        try:
            return await self._answer(self._executor.submit(self.ages.count, partial(self._done, job)))
        finally:
            self.ages.leave(entered)

    def _done(self, job: Callable[[], Result]) -> Result:
        with self._computing():
            return job()

    async def _answer(self, job: "Future[Result]") -> Result:
        done = asyncio.wrap_future(job)
        try:
            await asyncio.wait([done], timeout=self._seconds)
            if not done.done() and (job.cancel() or self._whole):
                message = f"the database did not answer within {self._seconds:g} s"
                raise Unavailable(503, "store-unavailable", message, retry_after=2)
            return await done
        finally:
            # Whoever asked has gone, or has been answered.
            done.cancel()

    def close(self) -> None:
        """Begin nothing further. What has begun is not waited for: nobody does any more."""
        self._executor.shutdown(wait=False, cancel_futures=True)
