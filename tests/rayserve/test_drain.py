"""Before the end of everything what is in flight is answered, and what comes is told to come again."""

import asyncio

from offpolicy_monitor.rayserve.drain import Drain
from offpolicy_monitor.server.http.problems import FAULT_KEY
from starlette.types import Message, Receive, Scope, Send


async def _nothing() -> Message:
    raise AssertionError


async def _nowhere(message: Message) -> None:
    raise AssertionError


class Slow:
    """An application that answers when it is let. `answered` are the requests, and what each was refused for."""

    def __init__(self) -> None:
        self.let, self.answered = asyncio.Event(), list[tuple[str, str | None]]()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        fault = scope.get(FAULT_KEY)
        if fault is None and scope["type"] == "http":
            await self.let.wait()
        self.answered.append((scope["path"], fault and f"{fault.status} {fault.kind} {fault.retry_after}"))


def _scope(path: str, kind: str = "http") -> Scope:
    return {"type": kind, "path": path}


async def _drained() -> None:
    slow = Slow()
    drain = Drain(slow)
    begun = asyncio.create_task(drain(_scope("begun"), _nothing, _nowhere))
    await asyncio.sleep(0)
    assert await drain.drain(0.01) == 1
    end = asyncio.create_task(drain.drain(10))
    await drain(_scope("late"), _nothing, _nowhere)
    await drain(_scope("closes", "lifespan"), _nothing, _nowhere)
    assert not end.done()
    slow.let.set()
    assert await end == 0
    await begun
    assert slow.answered == [("late", "503 stopping 2"), ("closes", None), ("begun", None)]


def test_what_is_in_flight_is_waited_for_and_what_comes_is_refused_for_now() -> None:
    asyncio.run(asyncio.wait_for(_drained(), 20))
