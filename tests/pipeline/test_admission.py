"""Bytes are admitted in order of arrival, and only while they fit."""

import asyncio
from collections.abc import Sequence

import pytest
from offpolicy_monitor.errors import Unavailable
from offpolicy_monitor.pipeline.admission import ByteBudget
from offpolicy_monitor.pipeline.lanes import BodyBudget
from offpolicy_monitor.pipeline.pace import Pace

SETTING = "OFFPOLICY_INFLIGHT_BYTES"


async def hold(budget: ByteBudget, size: int, admitted: list[int], release: asyncio.Event) -> None:
    async with budget.reserve(size):
        admitted.append(size)
        await release.wait()


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_what_fits_is_admitted_and_the_rest_waits_in_order() -> None:
    async def scenario() -> None:
        budget, admitted, release = ByteBudget(10, 5, SETTING), list[int](), asyncio.Event()
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
        budget, admitted, release = ByteBudget(10, 5, SETTING), list[int](), asyncio.Event()
        tasks = [asyncio.create_task(hold(budget, size, admitted, release)) for size in (1, 500)]
        await settle()
        assert admitted == [1]
        release.set()
        await asyncio.gather(*tasks)
        assert admitted == [1, 500]

    asyncio.run(scenario())


def test_what_is_not_needed_goes_to_those_who_wait() -> None:
    async def scenario() -> None:
        budget = ByteBudget(10, 5, SETTING)
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
        budget = ByteBudget(10, 0.02, SETTING)
        async with budget.reserve(10):
            with pytest.raises(Unavailable, match="OFFPOLICY_INFLIGHT_BYTES") as refused:
                async with budget.reserve(1):
                    raise AssertionError("admitted into a full budget")
        assert (refused.value.status, refused.value.retry_after) == (503, 1)
        assert budget.used == 0

    asyncio.run(scenario())


def test_one_who_leaves_the_queue_lets_the_next_one_in() -> None:
    async def scenario() -> None:
        budget, admitted, release = ByteBudget(10, 5, SETTING), list[int](), asyncio.Event()
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
        budget = ByteBudget(10, 5, SETTING)
        async with budget.reserve(10):
            waiting = asyncio.create_task(hold(budget, 10, [], asyncio.Event()))
            await settle()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert budget.used == 0

    asyncio.run(scenario())


def test_a_reservation_grows_and_gives_everything_back() -> None:
    async def scenario() -> None:
        budget = ByteBudget(10, 5, SETTING)
        async with budget.reserve(2) as reservation:
            await reservation.grow(7)
            assert (reservation.size, budget.used) == (7, 7)
            await reservation.grow(500)  # the whole budget is all that one request can have
            assert (reservation.size, budget.used) == (10, 10)
        assert budget.used == 0

    asyncio.run(scenario())


async def grown(budget: ByteBudget, sizes: Sequence[int], done: list[int], name: int) -> None:
    """Reserve the first size, then grow to each of the others, as a body does whose length is not known."""
    async with budget.reserve(sizes[0]) as reservation:
        for size in sizes[1:]:
            await asyncio.sleep(0)
            await reservation.grow(size)
        done.append(name)


def test_those_that_are_in_grow_before_others_come_in() -> None:
    async def scenario() -> None:
        budget, done, release = ByteBudget(10, 5, SETTING), list[int](), asyncio.Event()
        first = asyncio.create_task(hold(budget, 5, [], release))
        await settle()
        growing = asyncio.create_task(grown(budget, (3, 8), done, 1))
        await settle()
        arriving = asyncio.create_task(grown(budget, (2,), done, 2))
        await settle()
        assert (done, budget.used) == ([], 8)  # 2 would fit, but then 8 would wait for longer
        release.set()
        await asyncio.gather(first, growing, arriving)
        assert (done, budget.used) == ([1, 2], 0)

    asyncio.run(scenario())


def test_growing_reservations_that_fill_the_budget_cannot_block_each_other() -> None:
    async def scenario() -> None:
        budget, done, most = ByteBudget(10, 5, SETTING), list[int](), 0
        tasks = [asyncio.create_task(grown(budget, (2, 4, 8, 9), done, name)) for name in range(5)]
        while not all(task.done() for task in tasks):
            most = max(most, budget.used)
            await asyncio.sleep(0)
        await asyncio.gather(*tasks)
        assert done[0] == 0  # the oldest is let over the capacity, and alone
        assert sorted(done) == [0, 1, 2, 3, 4]
        assert 10 < most < 20
        assert budget.used == 0

    asyncio.run(scenario())


def test_too_long_a_wait_to_grow_is_503_and_frees_what_was_held() -> None:
    async def scenario() -> None:
        budget = ByteBudget(10, 0.02, SETTING)
        async with budget.reserve(5):
            with pytest.raises(Unavailable) as refused:
                async with budget.reserve(3) as reservation:
                    await reservation.grow(8)
            assert (refused.value.status, budget.used) == (503, 5)
        assert budget.used == 0

    asyncio.run(scenario())


def test_nothing_needs_no_place_in_the_queue() -> None:
    async def scenario() -> None:
        budget = ByteBudget(10, 0.02, SETTING)
        async with budget.reserve(10), budget.reserve(0):
            assert budget.used == 10

    asyncio.run(scenario())


async def receiving(budget: ByteBudget, size: int, pace: Pace) -> str:
    """Hold bytes and wait for a sender who sends nothing, until told not to."""
    cut = asyncio.Event()
    async with budget.reserve(size, pace):
        with pace.waiting(cut.set):
            await cut.wait()
    return "cut off"


def test_who_waits_gets_the_room_of_the_slowest_and_the_others_keep_theirs() -> None:
    async def scenario() -> None:
        budget, admitted, release = ByteBudget(10, 5, SETTING), list[int](), asyncio.Event()
        slow, fast = Pace(100, 5.0, received=1, waited=2.0), Pace(100, 60.0, received=99, waited=2.0)
        tasks = [asyncio.create_task(receiving(budget, 5, pace)) for pace in (fast, slow)]
        await settle()
        assert not slow.is_cut_off  # nobody waits
        waiting = asyncio.create_task(hold(budget, 5, admitted, release))
        assert await tasks[1] == "cut off"
        await settle()
        assert (admitted, fast.is_cut_off, budget.used) == ([5], False, 10)
        release.set()
        await waiting
        fast.cut_off()
        await tasks[0]
        assert budget.used == 0

    asyncio.run(scenario())


def test_the_pace_of_who_waits_for_room_is_not_judged() -> None:
    pace = Pace(1_000_000, 60.0, received=1, waited=50.0)
    assert pace.lag() == 0
    with pace.waiting(lambda: None):
        assert pace.lag() > 1


def test_large_bodies_leave_a_share_to_small_ones_and_the_whole_is_never_exceeded() -> None:
    async def scenario() -> None:
        budget = BodyBudget(800, 0.02, SETTING)
        async with budget.reserve(700, 700, Pace(700, 60)):
            with pytest.raises(Unavailable):
                async with budget.reserve(1, 26, Pace(26, 60)):
                    raise AssertionError("larger than small")
            async with budget.reserve(25, 25, Pace(25, 60)), budget.reserve(75, 25, Pace(25, 60)):
                assert budget.used == 800
                with pytest.raises(Unavailable):
                    async with budget.reserve(1, 1, Pace(1, 60)):
                        raise AssertionError("beyond the capacity")
        assert budget.used == 0

    asyncio.run(scenario())
