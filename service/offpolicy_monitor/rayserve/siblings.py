"""Siblings: the other replicas, as one of them tells them what it has stored: so a page at any of them sees all.

What is told in some milliseconds goes in one message, by whatever `send` is; nobody asks anything. Who listens says so
again and again, since replicas come and go. Knows no Ray.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import structlog

from offpolicy_monitor.server.workers.siblings import LOST, Answer, Heard

log = structlog.get_logger("offpolicy_monitor.server")
#: What is told: its kind, and data that are plain.
Message = tuple[str, Any]
#: Takes the name of this replica and what it tells to all replicas that there are; raises where that cannot be.
Send = Callable[[str, Sequence[Message]], Awaitable[object]]
#: Seconds for which messages are collected, and after which it is tried again where nobody could be told.
COLLECTED_FOR: Final = 0.02
AGAIN_AFTER: Final = 1.0
#: Messages that wait to be sent; whoever has more has lost them.
MOST_WAITING: Final = 4096
#: How often somebody who listens says so, and for how long it holds, seconds.
SAID_EVERY: Final = 5.0
HOLDS_FOR: Final = 20.0
LISTENS: Final = "listens"


class Replicas:
    """Those of the replica `name`. Made on the event loop; `tell` may be called by any thread."""

    #: Each replica answers for itself alone.
    workers: Final = 1

    def __init__(self, name: str, send: Send, clock: Callable[[], float] = time.monotonic) -> None:
        self._name, self._send, self._clock = name, send, clock
        self._loop = asyncio.get_running_loop()
        self._heard: dict[str, Heard] = {}
        self._waiting: list[Message] = []
        self._lost = self._failed = False
        self._sending: asyncio.Task[None] | None = None
        self._saying: asyncio.Task[None] | None = None
        #: Until when each listens. Who has just begun does not know, and takes it that somebody does.
        self._listening = {"": clock() + HOLDS_FOR}

    def tell(self, kind: str, data: Any) -> None:
        """Tell all of them, whoever is there."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._told, (kind, data))

    def hear(self, kind: str, heard: Heard) -> None:
        """What is done when one of them tells this kind."""
        self._heard[kind] = heard

    def answer(self, kind: str, answer: Answer) -> None:
        """Nobody asks."""

    async def ask(self, kind: str, within: float, data: Any = None) -> dict[int, Any]:
        """Nobody is asked."""
        return {}

    def listens(self, listens: bool) -> None:
        """Whether anybody listens here; others are told as long as that is so, and when it is over."""
        if listens and self._saying is None:
            self._saying = self._loop.create_task(self._say())
        elif not listens and self._saying is not None:
            self._saying.cancel()
            self._saying = None
            self.tell(LISTENS, False)

    def others_listen(self) -> bool:
        """Whether anybody listens to one of them."""
        now = self._clock()
        return any(now < until for until in self._listening.values())

    def received(self, source: str, messages: Sequence[Message]) -> None:
        """A replica, which may be this one, has told all of them this."""
        if source == self._name:
            return
        for kind, data in messages:
            if kind == LISTENS:
                self._notes(source, data)
            elif kind in self._heard:
                self._heard[kind](data)

    def _notes(self, source: str, listens: bool) -> None:
        now = self._clock()
        self._listening = {name: until for name, until in self._listening.items() if now < until and name != source}
        if listens:
            self._listening[source] = now + HOLDS_FOR

    async def _say(self) -> None:
        while True:
            self.tell(LISTENS, True)
            await asyncio.sleep(SAID_EVERY)

    def _told(self, message: Message) -> None:
        if len(self._waiting) < MOST_WAITING:
            self._waiting.append(message)
        else:
            self._lost = True
        if self._sending is None:
            self._sending = self._loop.create_task(self._send_on())

    async def _send_on(self) -> None:
        """Until nothing waits. What was not taken is lost, and they are told so as soon as that can be."""
        while self._waiting or self._lost:
            await asyncio.sleep(AGAIN_AFTER if self._failed else COLLECTED_FOR)
            messages, self._waiting = [(LOST, None)] * self._lost + self._waiting, []
            try:
                await self._send(self._name, messages)
                self._lost = self._failed = False
            except Exception as error:  # a boundary: whatever keeps them from being told
                if not self._failed:
                    log.warning("other replicas are not told", reason=str(error).partition("\n")[0])
                self._lost = self._failed = True
        self._sending = None
