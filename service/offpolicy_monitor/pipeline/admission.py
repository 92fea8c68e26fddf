"""ByteBudget: how many bytes of one kind may be in memory at once.

A share is reserved before its bytes are there, in order of arrival, so that TCP holds back what does not fit. It may
grow as they come; where they come too slowly, it is lost to those that wait. Lives on one event loop; knows neither
HTTP nor what the bytes mean.
"""

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Final

from offpolicy_monitor.errors import Unavailable
from offpolicy_monitor.pipeline.pace import Paced

#: How long one waits before the slowest of those that are in is cut off, and again before the next one is, seconds.
PATIENCE: Final = 0.25


@dataclass(eq=False)
class Reservation:
    """Bytes that one request holds of the budget for a block, and the pace of who sends or takes them.

    `first` bytes are waited for at the block's begin; `size` is how many are held.
    """

    budget: "ByteBudget"
    first: int
    pace: Paced | None = None
    size: int = 0

    async def __aenter__(self) -> "Reservation":
        await self.budget.admit(self)
        return self

    async def __aexit__(self, *raised: object) -> None:
        self.budget.leave(self)

    async def grow(self, size: int) -> None:
        """Hold `size` bytes, or the whole budget where they are more; waits for them as `reserve` does."""
        await self.budget.extend(self, min(size, self.budget.capacity))

    def shrink(self, size: int) -> None:
        """Keep `size` bytes, at most what is held, and let waiting requests have the rest."""
        spare = self.size - max(0, size)
        if spare > 0:
            self.size -= spare
            self.budget.give_back(spare)


@dataclass(eq=False)
class _Waiting:
    """A request in a queue: who, for how many more bytes, and whether it has them."""

    reservation: Reservation
    wanted: int
    admitted: "asyncio.Future[None]"


class ByteBudget:
    """`capacity` bytes; `setting` is the variable that raises it.

    A request for more than the capacity gets all of it: it runs alone instead of never. New requests are admitted first
    come first served, once none that is already in waits to grow; of those, the oldest goes first. Where every one that
    is in waits to grow, none could ever end: the oldest is then let over the capacity, which at most doubles it.

    While one waits, those that are in and whose pace lags behind what is allowed are cut off, the slowest first.
    """

    def __init__(self, capacity: int, timeout: float, setting: str) -> None:
        self.capacity = capacity
        self.timeout = timeout
        self.setting = setting
        self.used = 0
        self._held: dict[Reservation, None] = {}
        self._growing: dict[Reservation, _Waiting] = {}
        self._arriving: deque[_Waiting] = deque()

    def reserve(self, size: int, pace: Paced | None = None) -> Reservation:
        """Hold `size` bytes for the block; wait for them at most `timeout` seconds, else Unavailable (503).

        Nothing takes no room in the queue.
        """
        return Reservation(self, size, pace)

    async def admit(self, reservation: Reservation) -> None:
        """Let a reservation have its first bytes."""
        wanted = min(reservation.first, self.capacity)
        if wanted == 0:
            return
        if self._has_room(wanted):
            self._held[reservation] = None
            self._hold(reservation, wanted)
            return
        arriving = self._waiting(reservation, wanted)
        self._arriving.append(arriving)
        try:
            await self._admission_of(arriving)
        except BaseException:
            self.leave(reservation)
            raise

    def leave(self, reservation: Reservation) -> None:
        """Take back what a reservation holds, and let waiting requests have it."""
        self._held.pop(reservation, None)
        reservation.shrink(0)
        self._admit()

    async def extend(self, reservation: Reservation, size: int) -> None:
        """Let a reservation that is held reach `size` bytes."""
        wanted = size - reservation.size
        if wanted > 0 and self._has_room(wanted):
            self._hold(reservation, wanted)
        elif wanted > 0:
            growing = self._growing[reservation] = self._waiting(reservation, wanted)
            await self._admission_of(growing)

    def give_back(self, size: int) -> None:
        """Return `size` bytes and admit the waiting requests that now fit."""
        self.used -= size
        self._admit()

    def _waiting(self, reservation: Reservation, wanted: int) -> _Waiting:
        return _Waiting(reservation, wanted, asyncio.get_running_loop().create_future())

    def _admit(self) -> None:
        """Give bytes to those that wait, in their order, for as long as they fit."""
        while self._growing:
            oldest = next(self._growing[held] for held in self._held if held in self._growing)
            if not self._fits(oldest) and len(self._growing) < len(self._held):
                return
            del self._growing[oldest.reservation]
            self._grant(oldest)
        while self._arriving and self._fits(self._arriving[0]):
            arriving = self._arriving.popleft()
            self._held[arriving.reservation] = None
            self._grant(arriving)

    def _has_room(self, wanted: int) -> bool:
        """Whether so many bytes are there at once, and nobody waits for them."""
        return not self._growing and not self._arriving and self.used + wanted <= self.capacity

    def _fits(self, waiting: _Waiting) -> bool:
        return self.used + waiting.wanted <= self.capacity

    def _grant(self, waiting: _Waiting) -> None:
        self._hold(waiting.reservation, waiting.wanted)
        waiting.admitted.set_result(None)

    def _hold(self, reservation: Reservation, size: int) -> None:
        self.used += size
        reservation.size += size

    async def _admission_of(self, waiting: _Waiting) -> None:
        self._admit()
        try:
            async with asyncio.timeout(self.timeout):
                while not waiting.admitted.done():
                    await asyncio.wait([waiting.admitted], timeout=PATIENCE)
                    self._cut_off_the_slowest()
        except TimeoutError:
            raise self._too_long() from None
        finally:
            self._leave(waiting)

    def _cut_off_the_slowest(self) -> None:
        """Of those that are in; nobody where none waits any more, or all are fast enough."""
        paces = [held.pace for held in self._held if held.pace is not None and not held.pace.is_cut_off]
        slowest = max(paces, key=lambda pace: pace.lag(), default=None)
        if slowest is not None and slowest.lag() > 1 and (self._growing or self._arriving):
            slowest.cut_off()

    def _leave(self, waiting: _Waiting) -> None:
        """Wait no longer; what was granted in the same instant belongs to the reservation, which gives it back."""
        if waiting.admitted.done():
            return
        waiting.admitted.cancel()
        if self._growing.pop(waiting.reservation, None) is None:
            self._arriving.remove(waiting)
        self._admit()

    def _too_long(self) -> Unavailable:
        detail = (
            f"no room within {self.timeout:g} s: {self.used} of {self.capacity} bytes are in use; "
            f"send it again later, or raise {self.setting}"
        )
        return Unavailable(503, "busy", detail, retry_after=max(1, round(self.timeout / 4)))
