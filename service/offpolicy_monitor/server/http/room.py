"""What answers of the reading routes may take of memory, from before they are made until their readers have taken them.

Each waits for room for the largest one, makes its answer, and keeps what that takes. Who waits gets the room of readers
that stand still.
"""

import time
from collections.abc import Callable
from typing import Any, Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

#: What an answer is taken for before it is made, bytes.
LARGEST: Final = 12 << 20
#: Where the connection leaves its Taker.
TAKER_KEY: Final = "offpolicy_monitor.taker"
#: Seconds without taking anything after which a reader loses its answer to those that wait.
STANDS_STILL: Final = 1.0


class Taker:
    """The client of a connection, who takes answers; `cut` ends the connection."""

    def __init__(self, cut: Callable[[], None]) -> None:
        self.is_cut_off = False
        self._cut = cut
        self._since: float | None = None

    def stops(self) -> None:
        """What was written is not taken."""
        self._since = time.monotonic()

    def goes_on(self) -> None:
        """It was taken."""
        self._since = None

    def lag(self) -> float:
        """Above 1: standing still for too long, where others wait."""
        return 0.0 if self._since is None else (time.monotonic() - self._since) / STANDS_STILL

    def cut_off(self) -> None:
        """End it."""
        self.is_cut_off = True
        self._cut()


async def with_room(answer: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """Let `answer` make and send its answer where there is room for it; Unavailable (503) where none is in time."""
    budget: Any = scope["app"].state.services.answers
    async with budget.reserve(LARGEST, scope.get(TAKER_KEY)) as reservation:

        async def give(message: Message) -> None:
            if message["type"] == "http.response.body":
                reservation.shrink(len(message.get("body", b"")))
            await send(message)

        await answer(scope, receive, give)
