"""Shared: one answer made for everyone who waits for it. Knows nothing of what is made.

One is made at a time. Who asks while one is made waits for the next, together with all others who ask for the same
meanwhile: an answer is never older than the question, and however many ask at once, two are made.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Answer = TypeVar("Answer")


class Shared(Generic[Key, Answer]):
    """`make` runs in a thread, once at a time, each time after what is done `before`. To be used on one event loop."""

    def __init__(self, make: Callable[[Key], Answer], before: Callable[[], Awaitable[None]] | None = None) -> None:
        self._make, self._before = make, before
        self._one_at_a_time = asyncio.Lock()
        self._waiting: dict[Key, asyncio.Future[Answer]] = {}

    async def get(self, key: Key) -> Answer:
        """An answer whose making begins after this call; raises what making it raised."""
        if key not in self._waiting:
            self._waiting[key] = making = asyncio.ensure_future(self._made(key))
            making.add_done_callback(_noticed)
        # One who goes away takes it from nobody else.
        return await asyncio.shield(self._waiting[key])

    async def _made(self, key: Key) -> Answer:
        async with self._one_at_a_time:
            # From here on it is too old for those who have not asked yet.
            del self._waiting[key]
            if self._before is not None:
                await self._before()
            return await asyncio.to_thread(self._make, key)


def _noticed(making: asyncio.Future[Answer]) -> None:
    """Whoever waits is told of a failure; where nobody does any more, it is none."""
    if not making.cancelled():
        making.exception()
