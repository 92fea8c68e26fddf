"""Readers: who asks the store waits no longer than said, whatever becomes of the others."""

import asyncio
import threading
from contextlib import suppress

import pytest
from offpolicy_monitor.errors import Unavailable
from offpolicy_monitor.pipeline.readers import Readers


def test_an_answer_and_an_error_come_back() -> None:
    async def scenario() -> None:
        readers = Readers("read", 1, 5.0)
        assert await readers.run(lambda: 7) == 7
        with pytest.raises(ZeroDivisionError):
            await readers.run(lambda: 1 // 0)
        readers.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(("whole", "answered"), [(True, [None, None, None]), (False, ["read", None, None])])
def test_who_waits_for_a_thread_that_hangs_is_told_in_time_and_what_has_not_begun_never_does(
    whole: bool, answered: list[str | None]
) -> None:
    """One thread, three jobs, the first of which hangs: of `whole` readers even its own caller is told."""
    let, begun = threading.Event(), []

    def job(number: int) -> str:
        begun.append(number)
        let.wait(10)
        return "read"

    async def scenario() -> list[object]:
        readers = Readers("read", 1, 0.2, whole)
        tasks = [asyncio.create_task(readers.run(lambda n=n: job(n))) for n in range(3)]
        done, _ = await asyncio.wait(tasks[1:] + tasks[:1] * whole, timeout=5.0)
        assert len(done) == 2 + whole
        let.set()
        found: list[object] = [*await asyncio.gather(*tasks, return_exceptions=True)]
        readers.close()
        return found

    found = asyncio.run(scenario())
    assert [None if isinstance(answer, Unavailable) else answer for answer in found] == answered
    assert begun == [0]


def test_the_age_of_the_oldest_job_is_known() -> None:
    async def scenario() -> None:
        readers, let = Readers("read", 1, 5.0), threading.Event()
        task = asyncio.create_task(readers.run(lambda: let.wait(10)))
        await asyncio.sleep(0.1)
        assert readers.ages.oldest() >= 0.1
        let.set()
        await task
        assert readers.ages.oldest() == 0.0
        readers.close()

    asyncio.run(scenario())


def test_a_job_that_hangs_is_the_oldest_one_though_nobody_waits_for_it() -> None:
    let = threading.Event()

    async def scenario() -> None:
        readers = Readers("read", 1, 0.05, whole=True)
        with pytest.raises(Unavailable):
            await readers.run(lambda: let.wait(10))
        assert readers.ages.oldest() >= 0.04
        let.set()
        while readers.ages.oldest():
            await asyncio.sleep(0.001)
        readers.close()

    asyncio.run(asyncio.wait_for(scenario(), 30))


@pytest.mark.parametrize(("whole", "most"), [(False, 1), (True, 2)])
def test_jobs_that_compute_with_what_they_read_do_so_one_at_a_time(whole: bool, most: int) -> None:
    """And those that only read, side by side."""
    reading, highest = [0], [0]
    both = threading.Barrier(2)

    def job() -> None:
        reading[0] += 1
        highest[0] = max(highest[0], reading[0])
        with suppress(threading.BrokenBarrierError):
            both.wait(0.1)
        reading[0] -= 1

    async def scenario() -> None:
        readers = Readers("read", 2, 5.0, whole)
        await asyncio.gather(*(readers.run(job) for _ in range(2)))
        readers.close()

    asyncio.run(scenario())
    assert highest == [most]
