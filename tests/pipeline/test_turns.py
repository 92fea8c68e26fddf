"""The device's time is shared fairly, nobody waits for long without being told, nothing is done for those who left."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from offpolicy_monitor.errors import Refusal, Unavailable
from offpolicy_monitor.pipeline.turns import FIXED_BYTES, LONGEST_AWAY, Turns

LANES = ("small", "large")
SETTING = "OFFPOLICY_MAX_QUEUE_WAIT"


class Device:
    """Does jobs one after the other when it is let, each in the seconds that it is given; notes their names."""

    def __init__(self, longest: float = 1e9) -> None:
        self.turns = Turns(LANES, longest, SETTING, lambda: self.now)
        self.done: list[str] = []
        self.now = 0.0
        self._running = asyncio.Lock()
        self.let = asyncio.Event()

    async def do(
        self, name: str, lane: str = "small", seconds: float = 1.0, gone: asyncio.Future[None] | None = None
    ) -> None:
        size = round(seconds * FIXED_BYTES) - FIXED_BYTES
        async with self.turns.turn(lane, size, gone) as turn, self._running:
            await self.let.wait()
            turn.timed(lambda: self.done.append(name))()
            turn.seconds = seconds

    async def begin(self, *jobs: Coroutine[Any, Any, None]) -> list[asyncio.Task[None]]:
        """Tasks of these jobs, each of which has got as far as it gets."""
        tasks = [asyncio.create_task(job) for job in jobs]
        for _ in range(5):
            await asyncio.sleep(0)
        return tasks

    async def learn(self) -> None:
        """Measure often enough that a second's work is known to be one in both lanes."""
        self.let.set()
        for lane in LANES:
            for _ in range(200):
                await self.do("", lane)
        self.let.clear()
        self.done.clear()


def run(scenario: Callable[[Device], Coroutine[Any, Any, None]], longest: float = 1e9) -> None:
    async def made() -> None:
        device = Device(longest)
        await asyncio.wait_for(scenario(device), 20)

    asyncio.run(made())


def test_jobs_of_one_lane_are_served_in_order_of_arrival() -> None:
    async def scenario(device: Device) -> None:
        tasks = await device.begin(*(device.do(str(number)) for number in range(6)))
        device.let.set()
        await asyncio.gather(*tasks)
        assert device.done == list("012345")

    run(scenario)


def test_small_jobs_share_the_device_with_a_storm_of_large_ones() -> None:
    async def scenario(device: Device) -> None:
        await device.learn()
        large = await device.begin(*(device.do("L", "large", 4.0) for _ in range(8)))
        small = await device.begin(*(device.do("s", "small", 1.0) for _ in range(8)))
        device.let.set()
        await asyncio.gather(*large, *small)
        # Two large ones were at hand before any small one came; then four seconds of the one for four of the other.
        assert device.done[:2] == ["L", "L"]
        assert device.done[:13].count("s") == 8
        assert device.done[:6].count("L") <= 3

    run(scenario)


def test_a_job_that_would_wait_too_long_is_told_when_to_come_back_and_no_two_alike() -> None:
    async def scenario(device: Device) -> None:
        await device.learn()
        tasks = await device.begin(*(device.do("", "large") for _ in range(13)))
        told = []
        for _ in range(5):
            with pytest.raises(Unavailable) as busy:
                await device.do("", "large", 3.0)
            told.append(busy.value.retry_after)
        assert (busy.value.status, busy.value.kind, SETTING in busy.value.detail) == (503, "busy", True)
        # Eleven seconds wait besides what is at hand: half of them, and then each after the three seconds of another.
        assert told == [6, 9, 12, 15, 18]
        device.let.set()
        await asyncio.gather(*tasks)
        device.now = 1000.0
        await device.do("", "large")

    run(scenario, longest=10.0)


def test_nobody_is_told_to_stay_away_for_longer_than_the_longest_time() -> None:
    async def scenario(device: Device) -> None:
        await device.learn()
        tasks = await device.begin(*(device.do("", "large", 10.0) for _ in range(5)))
        told = []
        for _ in range(50):
            with pytest.raises(Unavailable) as busy:
                await device.do("", "large", 10.0)
            told.append(busy.value.retry_after)
        assert max(told) <= LONGEST_AWAY
        assert min(told[10:]) >= LONGEST_AWAY / 2
        assert len(set(told[10:])) > 10
        for task in tasks:
            task.cancel()

    run(scenario, longest=10.0)


def test_what_has_begun_is_not_refused_half_way() -> None:
    async def scenario(device: Device) -> None:
        await device.learn()
        tasks = await device.begin(*(device.do("", "large") for _ in range(13)))
        with pytest.raises(Unavailable):
            await device.do("", "large")
        device.let.set()
        async with device.turns.turn("large", 1, begun=True):
            pass
        await asyncio.gather(*tasks)

    run(scenario, longest=10.0)


def test_small_jobs_are_taken_while_large_ones_are_refused() -> None:
    async def scenario(device: Device) -> None:
        await device.learn()
        tasks = await device.begin(*(device.do("", "large") for _ in range(13)))
        with pytest.raises(Unavailable):
            await device.do("", "large")
        tasks += await device.begin(device.do("", "small"))
        device.let.set()
        await asyncio.gather(*tasks)

    run(scenario, longest=10.0)


def test_what_is_no_longer_waited_for_leaves_the_queue_at_once() -> None:
    async def scenario(device: Device) -> None:
        gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        first, second, third, last = await device.begin(
            device.do("1"), device.do("2"), device.do("3", gone=gone), device.do("4")
        )
        gone.set_result(None)
        with pytest.raises(Refusal, match="connection ended"):
            await third
        device.let.set()
        await asyncio.gather(first, second, last)
        assert device.done == ["1", "2", "4"]

    run(scenario)


def test_what_is_no_longer_waited_for_is_not_begun_though_it_is_at_hand() -> None:
    async def scenario(device: Device) -> None:
        gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        first, second = await device.begin(device.do("1"), device.do("2", gone=gone))
        gone.set_result(None)
        device.let.set()
        await first
        with pytest.raises(Refusal, match="connection ended"):
            await second
        await device.do("3")
        assert device.done == ["1", "3"]

    run(scenario)


def test_a_cancelled_job_gives_its_turn_to_the_next() -> None:
    async def scenario(device: Device) -> None:
        tasks = await device.begin(*(device.do(str(number)) for number in range(4)))
        for number in (0, 2):
            tasks[number].cancel()
        device.let.set()
        await asyncio.gather(tasks[1], tasks[3])
        assert device.done == ["1", "3"]

    run(scenario)
