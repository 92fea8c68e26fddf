"""A stage runs its jobs in its own threads, and never leaves one behind that still reads a buffer."""

import asyncio
import threading
from functools import partial

import pytest
from offpolicy_monitor.pipeline.workers import Worker


def test_jobs_of_a_single_thread_run_one_after_the_other() -> None:
    async def scenario() -> None:
        worker, names = Worker("measure"), set[str]()

        def job(number: int) -> int:
            names.add(threading.current_thread().name)
            return number

        results = await asyncio.gather(*(worker.run(partial(job, number)) for number in range(5)))
        worker.close()
        assert results == [0, 1, 2, 3, 4]
        assert names == {"measure_0"}

    asyncio.run(scenario())


def test_an_error_of_a_job_is_raised_to_its_caller_alone() -> None:
    async def scenario() -> None:
        worker = Worker("measure")
        with pytest.raises(ZeroDivisionError):
            await worker.run(lambda: 1 // 0)
        assert await worker.run(lambda: 1) == 1
        worker.close()

    asyncio.run(scenario())


def test_a_cancelled_caller_still_waits_for_the_job_that_was_begun() -> None:
    async def scenario() -> None:
        worker, begun, finish, done = Worker("measure"), threading.Event(), threading.Event(), list[bool]()

        def job() -> None:
            begun.set()
            assert finish.wait(10)
            done.append(True)

        task = asyncio.create_task(worker.run(job))
        while not begun.is_set():
            await asyncio.sleep(0.001)
        task.cancel()
        await asyncio.sleep(0.01)
        assert not task.done()
        finish.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert done == [True]
        worker.close()

    asyncio.run(scenario())
