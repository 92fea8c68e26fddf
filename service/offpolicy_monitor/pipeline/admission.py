"""ByteBudget: how many bytes of request bodies may be in memory at once.

A body is admitted before its first byte is read, in order of arrival, so that TCP holds back what does not fit. Lives
on one event loop; knows neither HTTP nor what the bytes mean.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from offpolicy_monitor.errors import Unavailable


@dataclass(eq=False)
class Reservation:
    """Bytes that one request holds of the budget; `shrink` gives back what it turns out not to need."""

    budget: "ByteBudget"
    size: int

    def shrink(self, size: int) -> None:
        """Keep `size` bytes, at most what is held, and let waiting requests have the rest."""
        spare = self.size - max(0, size)
        if spare > 0:
            self.size -= spare
            self.budget.give_back(spare)


class ByteBudget:
    """`capacity` bytes, handed out first come first served.

    A request for more than the capacity waits until it has all of it: it runs alone instead of never.
    """

    def __init__(self, capacity: int, timeout: float) -> None:
        self.capacity = capacity
        self.timeout = timeout
        self.used = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def reserve(self, size: int) -> AsyncIterator[Reservation]:
        """Hold `size` bytes for the block; wait for them at most `timeout` seconds, else Unavailable (503)."""
        size = min(size, self.capacity)
        await self._acquire(size)
        reservation = Reservation(self, size)
        try:
            yield reservation
        finally:
            reservation.shrink(0)

    def give_back(self, size: int) -> None:
        """Return `size` bytes and admit, in order, the waiting requests that now fit."""
        self.used -= size
        while self._waiting:
            wanted, admitted = self._waiting[0]
            if not admitted.done():
                if not self._fits(wanted):
                    return
                self.used += wanted
                admitted.set_result(None)
            self._waiting.popleft()

    def _fits(self, size: int) -> bool:
        return self.used + size <= self.capacity

    async def _acquire(self, size: int) -> None:
        if not self._waiting and self._fits(size):
            self.used += size
            return
        admitted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size, admitted))
        try:
            async with asyncio.timeout(self.timeout):
                await asyncio.shield(admitted)
        except BaseException as error:
            self._withdraw(size, admitted)
            if isinstance(error, TimeoutError):
                raise self._too_long() from None
            raise

    def _withdraw(self, size: int, admitted: "asyncio.Future[None]") -> None:
        """Leave the queue; give the bytes back where they were granted in the same instant."""
        granted = admitted.done() and not admitted.cancelled()
        admitted.cancel()
        self.give_back(size if granted else 0)

    def _too_long(self) -> Unavailable:
        detail = (
            f"no room for the body within {self.timeout:g} s: {self.used} of {self.capacity} bytes are in use; "
            "send it again later, or raise OFFPOLICY_INFLIGHT_BYTES"
        )
        return Unavailable(503, "busy", detail, retry_after=max(1, round(self.timeout / 4)))
