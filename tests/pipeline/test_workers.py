"""A stage runs its jobs in its own threads, and never leaves one behind that still reads a buffer."""

import asyncio
import threading
from concurrent.futures import CancelledError as FutureCancelled
from functools import partial

import pytest
from offpolicy_monitor.pipeline.workers import Ages, Worker


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


UNUSUAL = [
    *(StopIteration("a value"), StopAsyncIteration(), asyncio.CancelledError(), FutureCancelled(), SystemExit(3)),
    *(KeyboardInterrupt(), GeneratorExit(), MemoryError(), RecursionError()),
]


@pytest.mark.parametrize("error", UNUSUAL, ids=lambda error: f"{type(error).__module__}.{type(error).__name__}")
def test_whatever_a_job_raises_ends_that_job_with_an_error_and_frees_its_slot(error: BaseException) -> None:
    def job() -> None:
        raise error

    async def scenario() -> None:
        worker = Worker("measure", depth=1)
        with pytest.raises(Exception) as raised:
            await asyncio.wait_for(worker.run(job), 30)
        assert error in (raised.value, raised.value.__cause__)
        assert await asyncio.wait_for(worker.run(lambda: 1), 30) == 1
        assert worker.ages.oldest() == 0
        worker.close()

    asyncio.run(scenario())


def test_the_age_of_a_stage_is_that_of_its_oldest_unfinished_job() -> None:
    now = 10.0
    ages = Ages(lambda: now)
    assert ages.oldest() == 0
    first = ages.enter()
    now = 12.0
    second = ages.enter()
    now = 15.0
    assert ages.oldest() == 5
    ages.leave(first)
    assert ages.oldest() == 3
    ages.leave(second)
    assert ages.oldest() == 0


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
