"""Worker: a bounded set of threads for one stage that computes outside the event loop.

`measure` has one thread (one device, one stream of work), `decode` has a few. A job that was started is always waited
for, because it reads a pooled buffer that must not be reused under it.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Result = TypeVar("Result")


class Worker:
    """`threads` threads named after the stage; at most `depth` jobs wait or run, later ones wait in order."""

    def __init__(self, stage: str, threads: int = 1, depth: int = 64) -> None:
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix=stage)
        self._slots = asyncio.Semaphore(depth)

    async def run(self, job: Callable[[], Result]) -> Result:
        """The result of `job()` computed in a thread of this stage; its errors are raised here."""
        async with self._slots:
            done = asyncio.get_running_loop().run_in_executor(self._executor, job)
            try:
                return await asyncio.shield(done)
            except asyncio.CancelledError:
                await asyncio.wait([done])
                raise

    def close(self) -> None:
        """Finish what was started and end the threads."""
        self._executor.shutdown(wait=True)
