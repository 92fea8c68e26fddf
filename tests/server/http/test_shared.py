"""One answer for all who wait: never older than the question, made once at a time, and nobody waits for ever."""

import asyncio
import gc
import threading
from collections.abc import Callable

import pytest
from offpolicy_monitor.server.http.shared import Shared


class Maker:
    """Makes numbers, each when it is let; counts how many it makes at once."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self.at_once = self.most_at_once = 0
        self.begun = threading.Semaphore(0)
        self.let = threading.Semaphore(0)

    def __call__(self, key: str) -> tuple[str, int]:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        self.begun.release()
        assert self.let.acquire(timeout=10)
        self.at_once -= 1
        self.made.append(key)
        return key, len(self.made)


async def begun(maker: Maker) -> None:
    assert await asyncio.to_thread(maker.begun.acquire, timeout=10)


async def asked(shared: Shared, times: int, key: str = "text") -> list[asyncio.Task]:
    tasks = [asyncio.create_task(shared.get(key)) for _ in range(times)]
    await asyncio.sleep(0)
    return tasks


def test_all_who_ask_while_one_is_made_share_the_next() -> None:
    async def play() -> None:
        maker = Maker()
        shared: Shared[str, tuple[str, int]] = Shared(maker)
        first = await asked(shared, 3)
        await begun(maker)
        later = await asked(shared, 9)
        maker.let.release(2)
        assert set(await asyncio.gather(*first)) == {("text", 1)}
        # What was asked for while the first was made may not have been in it.
        assert set(await asyncio.gather(*later)) == {("text", 2)}
        assert len(maker.made) == 2

    asyncio.run(play())


def test_one_is_made_at_a_time_whatever_is_asked_for() -> None:
    async def play() -> None:
        maker = Maker()
        shared: Shared[str, tuple[str, int]] = Shared(maker)
        tasks = [task for key in ("text", "protobuf", "text") for task in await asked(shared, 2, key)]
        maker.let.release(10)
        assert {key for key, _ in await asyncio.gather(*tasks)} == {"text", "protobuf"}
        assert maker.most_at_once == 1 and len(maker.made) <= 3

    asyncio.run(play())


def test_one_who_goes_away_takes_the_answer_from_nobody() -> None:
    async def play() -> None:
        maker = Maker()
        shared: Shared[str, tuple[str, int]] = Shared(maker)
        gone, stays = await asked(shared, 2)
        await begun(maker)
        gone.cancel()
        maker.let.release()
        assert await stays == ("text", 1)
        assert gone.cancelled()

    asyncio.run(play())


def failing_once() -> Callable[[str], int]:
    calls: list[str] = []

    def make(key: str) -> int:
        calls.append(key)
        if len(calls) == 1:
            raise OSError("away")
        return 7

    return make


def test_all_who_wait_hear_of_a_failure_and_the_next_is_tried_again() -> None:
    async def play() -> None:
        shared: Shared[str, int] = Shared(failing_once())
        for task in await asked(shared, 3):
            with pytest.raises(OSError, match="away"):
                await task
        assert await shared.get("text") == 7

    asyncio.run(play())


def test_a_failure_that_nobody_waits_for_any_more_is_none() -> None:
    reported: list[object] = []

    async def play() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
        maker = Maker()

        def fail(key: str) -> None:
            maker(key)
            raise OSError("away")

        shared: Shared[str, None] = Shared(fail)
        [gone] = await asked(shared, 1)
        await begun(maker)
        gone.cancel()
        await asyncio.sleep(0)
        maker.let.release()
        while len(asyncio.all_tasks()) > 1:
            await asyncio.sleep(0.01)
        gc.collect()

    asyncio.run(play())
    assert not reported
