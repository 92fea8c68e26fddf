"""Bytes are admitted in order of arrival, and only while they fit."""

import asyncio

import pytest
from offpolicy_monitor.errors import Unavailable
from offpolicy_monitor.pipeline.admission import ByteBudget


async def hold(budget: ByteBudget, size: int, admitted: list[int], release: asyncio.Event) -> None:
    async with budget.reserve(size):
        admitted.append(size)
        await release.wait()


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_what_fits_is_admitted_and_the_rest_waits_in_order() -> None:
    async def scenario() -> None:
        budget, admitted, release = ByteBudget(10, timeout=5), list[int](), asyncio.Event()
        tasks = [asyncio.create_task(hold(budget, size, admitted, release)) for size in (6, 7, 3)]
        await settle()
        assert admitted == [6]  # 3 would fit, but 7 came first
        assert budget.used == 6
        release.set()
        await asyncio.gather(*tasks)
        assert admitted == [6, 7, 3]
        assert budget.used == 0

    asyncio.run(scenario())


def test_more_than_the_capacity_is_admitted_alone() -> None:
    async def scenario() -> None:
        budget, admitted, release = ByteBudget(10, timeout=5), list[int](), asyncio.Event()
        tasks = [asyncio.create_task(hold(budget, size, admitted, release)) for size in (1, 500)]
        await settle()
        assert admitted == [1]
        release.set()
        await asyncio.gather(*tasks)
        assert admitted == [1, 500]

    asyncio.run(scenario())


def test_what_is_not_needed_goes_to_those_who_wait() -> None:
    async def scenario() -> None:
        budget = ByteBudget(10, timeout=5)
        async with budget.reserve(10) as reservation:
            waiting = asyncio.create_task(hold(budget, 8, [], asyncio.Event()))
            await settle()
            assert budget.used == 10
            reservation.shrink(2)
            await settle()
            assert budget.used == 10
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            assert budget.used == 2
        assert budget.used == 0

    asyncio.run(scenario())


def test_too_long_a_wait_is_503_and_says_when_to_come_back() -> None:
    async def scenario() -> None:
        budget = ByteBudget(10, timeout=0.02)
        async with budget.reserve(10):
            with pytest.raises(Unavailable, match="OFFPOLICY_INFLIGHT_BYTES") as refused:
                async with budget.reserve(1):
                    raise AssertionError("admitted into a full budget")
        assert (refused.value.status, refused.value.retry_after) == (503, 1)
        assert budget.used == 0

    asyncio.run(scenario())


def test_one_who_leaves_the_queue_lets_the_next_one_in() -> None:
    async def scenario() -> None:
        budget, admitted, release = ByteBudget(10, timeout=5), list[int](), asyncio.Event()
        async with budget.reserve(5):
            large = asyncio.create_task(hold(budget, 9, admitted, release))
            small = asyncio.create_task(hold(budget, 2, admitted, release))
            await settle()
            assert admitted == []
            large.cancel()
            await asyncio.gather(large, return_exceptions=True)
            await settle()
            assert admitted == [2]
            release.set()
            await small
        assert budget.used == 0

    asyncio.run(scenario())


def test_one_who_is_cancelled_in_the_instant_of_admission_gives_the_bytes_back() -> None:
    async def scenario() -> None:
        budget = ByteBudget(10, timeout=5)
        async with budget.reserve(10):
            waiting = asyncio.create_task(hold(budget, 10, [], asyncio.Event()))
            await settle()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert budget.used == 0

    asyncio.run(scenario())
