"""Deadlines end in their order on one timer of the loop, and what is at hand is awaited without one."""

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
import uvloop
from offpolicy_monitor.server.http.deadlines import Begun, Deadlines, deadlines_of

LOOPS = [asyncio.new_event_loop, uvloop.new_event_loop]


def run(scenario: Callable[[], Awaitable[Any]], new_loop: Callable[[], asyncio.AbstractEventLoop]) -> Any:
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(asyncio.wait_for(scenario(), 10))


def counted(monkeypatch: pytest.MonkeyPatch, deadlines: Deadlines) -> list[float]:
    """When each timer that is set from now on is to end."""
    found, wait_until = list[float](), deadlines._wait_until

    def noted(when: float) -> None:
        found.append(when)
        wait_until(when)

    monkeypatch.setattr(deadlines, "_wait_until", noted)
    return found


@pytest.mark.parametrize("new_loop", LOOPS)
def test_deadlines_end_in_their_order_whenever_they_began(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def scenario() -> list[tuple[str, float]]:
        loop, told = asyncio.get_running_loop(), list[tuple[str, float]]()
        deadlines, done = deadlines_of(loop), asyncio.Event()
        assert deadlines_of(loop) is deadlines
        began = loop.time()
        for name, seconds in (("third", 0.09), ("first", 0.03), ("second", 0.06), ("second too", 0.06)):
            deadlines.call_later(seconds, lambda name=name: told.append((name, loop.time() - began)))
        deadlines.call_later(0.045, told.append, ("never", 0.0)).cancel()
        deadlines.call_later(0.12, done.set)
        await done.wait()
        return told

    told = run(scenario, new_loop)
    assert [name for name, _ in told] == ["first", "second", "second too", "third"]
    for (_, after), wanted in zip(told, (0.03, 0.06, 0.06, 0.09), strict=True):
        assert wanted - 0.002 <= after < wanted + 1


def test_deadlines_that_are_cancelled_set_no_timer_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> tuple[int, int]:
        deadlines = deadlines_of(asyncio.get_running_loop())
        timers = counted(monkeypatch, deadlines)
        for _ in range(500):
            deadlines.call_later(60.0, print).cancel()
            deadlines.call_later(0.5, print).cancel()
        idle = deadlines.call_later(60.0, print)
        await asyncio.sleep(0.6)
        idle.cancel()
        return len(timers), len(deadlines._of)

    timers, left = run(scenario, uvloop.new_event_loop)
    assert timers == 3, "one for each that would be the first, one for what is left"
    assert left == 1


def test_a_call_that_fails_or_sets_another_deadline_stops_no_other() -> None:
    async def scenario() -> list[str]:
        loop, told, done = asyncio.get_running_loop(), list[str](), asyncio.Event()
        failed = list[dict[str, Any]]()
        loop.set_exception_handler(lambda _, context: failed.append(context))
        deadlines = deadlines_of(loop)
        deadlines.call_later(0.01, lambda: 1 / 0)
        deadlines.call_later(0.01, lambda: deadlines.call_later(0.01, told.append, "set by another"))
        deadlines.call_later(0.01, told.append, "beside it")
        deadlines.call_later(0.1, done.set)
        await done.wait()
        assert [type(context["exception"]) for context in failed] == [ZeroDivisionError]
        return told

    assert run(scenario, uvloop.new_event_loop) == ["beside it", "set by another"]


def test_one_whose_time_has_come_may_still_be_cancelled_by_one_that_is_called_before() -> None:
    async def scenario() -> list[str]:
        loop, told = asyncio.get_running_loop(), list[str]()
        deadlines = deadlines_of(loop)
        deadlines.call_later(0.01, lambda: late.cancel())
        late = deadlines.call_later(0.01, told.append, "late")
        await asyncio.sleep(0.05)
        return told

    assert run(scenario, uvloop.new_event_loop) == []


class Waits:
    """Has the deadline that it waits for."""

    def __init__(self, deadlines: Deadlines, seconds: float) -> None:
        self.deadline = deadlines.call_later(seconds, self.late)

    def late(self) -> None: ...


def test_who_has_a_deadline_that_is_over_is_no_work_for_the_collector_of_garbage() -> None:
    async def scenario() -> list[bool]:
        deadlines = deadlines_of(asyncio.get_running_loop())
        cancelled, over = Waits(deadlines, 60.0), Waits(deadlines, 0.01)
        found = weakref.ref(cancelled), weakref.ref(over)
        cancelled.deadline.cancel()
        await asyncio.sleep(0.05)
        del cancelled, over
        return [reference() is None for reference in found]

    gc.disable()
    try:
        assert run(scenario, uvloop.new_event_loop) == [True, True]
    finally:
        gc.enable()


def test_each_loop_has_its_own() -> None:
    async def scenario() -> Deadlines:
        return deadlines_of(asyncio.get_running_loop())

    assert run(scenario, uvloop.new_event_loop) is not run(scenario, uvloop.new_event_loop)


async def after(turns: int, found: str) -> str:
    for _ in range(turns):
        await asyncio.sleep(0.001)
    return found


@pytest.mark.parametrize("turns", [0, 1, 3])
def test_what_has_begun_is_there_or_is_awaited_from_where_it_waits(turns: int) -> None:
    async def scenario() -> tuple[bool, str]:
        begun = Begun(after(turns, "found"))
        return begun.is_there, await begun

    assert run(scenario, uvloop.new_event_loop) == (turns == 0, "found")


def test_what_has_begun_is_told_when_it_is_cancelled() -> None:
    told = list[str]()

    async def waits() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            told.append("cancelled")

    async def scenario() -> None:
        begun = Begun(waits())
        assert not begun.is_there
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await begun

    run(scenario, uvloop.new_event_loop)
    assert told == ["cancelled"]


def test_what_has_begun_and_fails_says_so() -> None:
    async def fails(turns: int) -> str:
        await after(turns, "")
        raise OSError("gone")

    async def scenario(turns: int) -> None:
        await Begun(fails(turns))

    for turns in (0, 2):
        with pytest.raises(OSError, match="gone"):
            run(partial(scenario, turns), uvloop.new_event_loop)
