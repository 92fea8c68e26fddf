"""One thread measures, or a few: whoever leaves is not measured, nothing that was begun is left behind, they go on."""

import asyncio
import sys
import threading
import time
import weakref
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import Any

import pytest
from offpolicy_monitor.errors import Refusal
from offpolicy_monitor.pipeline.device import Device
from offpolicy_monitor.pipeline.gone import Gone
from offpolicy_monitor.pipeline.turns import Turns
from offpolicy_monitor.pipeline.workers import JobError


class Measured:
    """A device that does not begin before it is let, and notes what it does."""

    def __init__(self, threads: int = 1) -> None:
        self.device = Device(Turns(("small",), 1e9, "OFFPOLICY_MAX_QUEUE_WAIT"), threads)
        self.done: list[str] = []
        self.let, self.begun = threading.Event(), threading.Event()

    def job(self, name: str) -> Callable[[], str]:
        def work() -> str:
            self.begun.set()
            assert self.let.wait(10)
            self.done.append(name)
            return name

        return work

    async def begin(self, *names: str, gone: Gone | None = None) -> list[asyncio.Task[Any]]:
        """Tasks of these jobs, which wait in this order behind the first."""
        tasks = [asyncio.create_task(self.device.run("small", 1, self.job(name), gone)) for name in names]
        await asyncio.to_thread(self.begun.wait, 10)
        return tasks


class Held:
    """What a job holds."""

    def work(self) -> None:
        """Nothing."""


def run(scenario: Callable[[Measured], Coroutine[Any, Any, None]], threads: int = 1) -> None:
    async def made() -> None:
        measured = Measured(threads)
        try:
            await asyncio.wait_for(scenario(measured), 20)
        finally:
            measured.let.set()
            await asyncio.to_thread(measured.device.close)

    asyncio.run(made())


def test_jobs_are_done_by_one_thread_in_order() -> None:
    async def scenario(measured: Measured) -> None:
        tasks = await measured.begin("1", "2", "3")
        measured.let.set()
        assert await asyncio.gather(*tasks) == measured.done == ["1", "2", "3"]
        thread = await measured.device.run("small", 1, threading.current_thread)
        assert thread.name == "measure"
        assert measured.device.ages.oldest() == 0

    run(scenario)


def test_what_goes_on_with_a_job_sees_to_the_answer() -> None:
    async def scenario(measured: Measured) -> None:
        def then(given: str, done: "asyncio.Future[Any]") -> None:
            names.append(threading.current_thread().name)
            measured.device.give(given.upper(), done)

        names: list[str] = []
        assert await measured.device.run("small", 1, lambda: "a", then=then) == "A"
        assert names == ["measure"]

    run(scenario)


@pytest.mark.parametrize("error", [ZeroDivisionError(), StopIteration("a value"), SystemExit(3), MemoryError()])
def test_whatever_a_job_raises_ends_that_job_alone(error: BaseException) -> None:
    async def scenario(measured: Measured) -> None:
        def work() -> None:
            raise error

        with pytest.raises(type(error) if isinstance(error, (ArithmeticError, MemoryError)) else JobError):
            await measured.device.run("small", 1, work)
        assert await measured.device.run("small", 1, lambda: 1) == 1

    run(scenario)


def test_what_is_no_longer_waited_for_leaves_the_queue_at_once() -> None:
    async def scenario(measured: Measured) -> None:
        gone: Gone = asyncio.get_running_loop().create_future()
        first = await measured.begin("1")
        third = asyncio.create_task(measured.device.run("small", 1, measured.job("2"), gone))
        last = asyncio.create_task(measured.device.run("small", 1, measured.job("3")))
        await asyncio.sleep(0.01)
        gone.set_result(None)
        with pytest.raises(Refusal, match="connection ended"):
            await third
        with pytest.raises(Refusal, match="connection ended"):
            await measured.device.run("small", 1, measured.job("4"), gone)
        measured.let.set()
        await asyncio.gather(*first, last)
        assert measured.done == ["1", "3"]

    run(scenario)


def test_what_is_being_measured_is_finished_though_nobody_waits_for_it() -> None:
    async def scenario(measured: Measured) -> None:
        gone: Gone = asyncio.get_running_loop().create_future()
        [task] = await measured.begin("1", gone=gone)
        gone.set_result(None)
        await asyncio.sleep(0.01)
        assert not task.done()
        measured.let.set()
        assert await task == "1"

    run(scenario)


def test_a_cancelled_caller_waits_for_the_end_of_what_was_begun_alone() -> None:
    async def scenario(measured: Measured) -> None:
        first, second, third = await measured.begin("1", "2", "3")
        for task in (first, second):
            task.cancel()
        await asyncio.sleep(0.01)
        assert (first.done(), second.done()) == (False, True)
        measured.let.set()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert measured.done[0] == "1"
        await third
        assert measured.done == ["1", "3"]

    run(scenario)


def test_nothing_of_a_job_is_kept_while_the_device_waits_for_the_next() -> None:
    async def scenario(measured: Measured) -> None:
        held = Held()
        seen = weakref.ref(held)
        await measured.device.run("small", 1, held.work)
        del held
        while seen() is not None:
            await asyncio.sleep(0.005)

    run(scenario)


class Elsewhere:
    """Goes on with what a job gave while the device goes on without the thread that did it, until it is let."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self.let, self.begun = threading.Event(), threading.Event()
        self.alone: list[bool] = []
        self.thread: threading.Thread | None = None

    async def gone(self, measured: Measured) -> "asyncio.Task[str]":
        """A job whose thread is elsewhere now."""
        measured.let.set()
        task = asyncio.create_task(self._device.run("small", 1, measured.job("1"), then=self.then))
        await asyncio.to_thread(self.begun.wait, 10)
        return task

    def then(self, given: str, done: "asyncio.Future[str]") -> None:
        self.alone.append(self._device.is_alone)
        self.thread = threading.current_thread()
        with self._device.elsewhere():
            self.begun.set()
            assert self.let.wait(10)
        self._device.give(given, done)


def noting(threads: list[threading.Thread]) -> Callable[[], None]:
    """A job that notes who does it."""
    return lambda: threads.append(threading.current_thread())


def test_another_thread_goes_on_where_one_is_elsewhere_and_there_is_a_job() -> None:
    async def scenario(measured: Measured) -> None:
        device, away, threads = measured.device, Elsewhere(measured.device), list[threading.Thread]()
        first = await away.gone(measured)
        await device.run("small", 1, noting(threads))
        await device.run("small", 1, noting(threads))
        assert not first.done()
        away.let.set()
        assert await first == "1"
        await device.run("small", 1, noting(threads))
        assert away.thread is not None and away.thread not in threads and len(set(threads)) == 1
        await asyncio.to_thread(away.thread.join, 10)
        assert not away.thread.is_alive()

    run(scenario)


def test_a_job_that_waits_already_is_not_kept_waiting_by_a_thread_that_goes_elsewhere() -> None:
    async def scenario(measured: Measured) -> None:
        device, away = measured.device, Elsewhere(measured.device)
        first = asyncio.create_task(device.run("small", 1, measured.job("1"), then=away.then))
        second = asyncio.create_task(device.run("small", 1, measured.job("2")))
        await asyncio.to_thread(measured.begun.wait, 10)
        measured.let.set()
        assert await second == "2"
        assert not first.done() and away.alone == [False]
        away.let.set()
        await first

    run(scenario)


def test_one_thread_does_all_where_no_job_comes_while_it_is_elsewhere() -> None:
    async def scenario(measured: Measured) -> None:
        device, away, threads = measured.device, Elsewhere(measured.device), list[threading.Thread]()
        measured.let.set()
        away.let.set()
        for _ in range(3):
            await device.run("small", 1, measured.job("1"), then=away.then)
            threads.append(away.thread or threading.current_thread())
        await device.run("small", 1, noting(threads))
        assert away.alone == [True] * 3 and len(set(threads)) == 1

    run(scenario)


def test_the_end_does_not_wait_for_a_thread_that_is_elsewhere() -> None:
    async def scenario(measured: Measured) -> None:
        device, away = measured.device, Elsewhere(measured.device)
        first = await away.gone(measured)
        await asyncio.wait_for(asyncio.to_thread(device.close), 10)
        away.let.set()
        assert await first == "1"

    run(scenario)


@pytest.mark.parametrize("threads", [2, 3])
def test_as_many_jobs_are_done_at_a_time_as_there_may_be_threads(threads: int) -> None:
    async def scenario(measured: Measured) -> None:
        begun, others = list[str](), threading.Barrier(threads + 1)

        def work(name: str) -> str:
            begun.append(name)
            others.wait(10)
            assert measured.let.wait(10)
            return name

        names = [str(number) for number in range(2 * threads)]
        tasks = [asyncio.create_task(measured.device.run("small", 1, partial(work, name))) for name in names]
        await asyncio.to_thread(others.wait, 10)
        await asyncio.sleep(0.02)
        assert sorted(begun) == names[:threads]
        others.reset()
        measured.let.set()
        await asyncio.to_thread(others.wait, 10)
        assert await asyncio.gather(*tasks) == names

    run(scenario, threads)


@pytest.fixture
def hasty() -> Iterator[None]:
    """Threads give way to each other at nearly every step, so that what can come between two steps soon does."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


@pytest.mark.usefixtures("hasty")
def test_every_thread_meets_the_end_whatever_comes_between() -> None:
    """Of 32 threads one was left waiting for ever in one close of 40, where one that ended had another begin."""

    async def scenario(measured: Measured) -> None:
        together = threading.Barrier(32)
        await asyncio.gather(*(measured.device.run("small", 1, partial(together.wait, 10)) for _ in range(32)))
        await asyncio.wait_for(asyncio.to_thread(measured.device.close), 10)

    for _ in range(150):
        run(scenario, 32)


@pytest.mark.usefixtures("hasty")
def test_closing_waits_for_what_is_done_by_threads_that_begin_meanwhile() -> None:
    async def scenario(measured: Measured) -> None:
        done = list[int]()

        def work(number: int) -> None:
            time.sleep(0.002)
            done.append(number)

        tasks = [asyncio.create_task(measured.device.run("small", 1, partial(work, number))) for number in range(24)]
        await asyncio.sleep(0)
        await asyncio.to_thread(measured.device.close)
        assert sorted(done) == list(range(24))
        await asyncio.gather(*tasks)

    for _ in range(20):
        run(scenario, 8)


def test_threads_are_kept_for_the_jobs_that_come() -> None:
    async def scenario(measured: Measured) -> None:
        threads = list[threading.Thread]()
        for _ in range(50):
            await measured.device.run("small", 1, noting(threads))
        assert len(set(threads)) <= 2

    run(scenario, 2)


def test_a_thread_that_comes_back_takes_its_place_among_a_few_again() -> None:
    async def scenario(measured: Measured) -> None:
        device, away, threads = measured.device, Elsewhere(measured.device), list[threading.Thread]()
        first = await away.gone(measured)
        await device.run("small", 1, noting(threads))
        away.let.set()
        await first
        both = threading.Barrier(2)

        def together() -> None:
            both.wait(10)
            threads.append(threading.current_thread())

        await asyncio.gather(*(device.run("small", 1, together) for _ in range(2)))
        assert away.thread in threads and len(set(threads)) == 2

    run(scenario, 2)


def test_the_end_waits_for_every_thread_and_for_all_that_came() -> None:
    async def scenario(measured: Measured) -> None:
        tasks = await measured.begin("1", "2", "3", "4")
        end = asyncio.create_task(asyncio.to_thread(measured.device.close))
        await asyncio.sleep(0.02)
        assert not end.done()
        measured.let.set()
        await end
        assert sorted(measured.done) == ["1", "2", "3", "4"]
        await asyncio.gather(*tasks)

    run(scenario, 2)
