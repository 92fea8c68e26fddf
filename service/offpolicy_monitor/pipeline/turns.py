"""Turns: which job the device does next, and which it cannot do in time and is told so at once.

Jobs wait in lanes that share the device's time equally while they have any, so that a storm of large shards does not
keep small ones away; within a lane they are served in order of arrival. What a job will take is estimated from what
the lane's last ones took by size. A job whose wait would be too long is refused with the time to come back, and no two
are given the same. Lives on one event loop; knows neither what is computed nor HTTP.
"""

import asyncio
import math
import random
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, TypeVar

from offpolicy_monitor.errors import Refusal, Unavailable

Result = TypeVar("Result")
Gone = asyncio.Future[None]

#: One job runs, and the next one is at hand when it ends.
AT_HAND: Final = 2
#: What every job costs besides its bytes, in bytes: a shard of 2,000 tokens takes a tenth of one of 200,000.
FIXED_BYTES: Final = 256 * 1024
#: Seconds a byte before anything was measured.
FIRST_RATE: Final = 1e-7
#: How much the last job weighs against those before it, a tenth of whose weight is lost with each.
DECAY: Final = 0.9
#: No one is told to stay away for longer, seconds: by then the queue is another one.
LONGEST_AWAY: Final = 60.0


@dataclass(eq=False)
class Turn:
    """One job's turn: what it was estimated at, and what it took."""

    units: int
    gone: Gone | None
    estimate: float
    admitted: "asyncio.Future[None]"
    seconds: float | None = None

    def timed(self, job: Callable[[], Result]) -> Callable[[], Result]:
        """The job, which tells how long it took and does nothing for one who no longer waits for it."""

        def run() -> Result:
            began = time.perf_counter()
            try:
                return job()
            finally:
                self.seconds = time.perf_counter() - began

        return present(self.gone, run)


@dataclass(eq=False)
class _Lane:
    """Jobs that wait in order of arrival, and what is known of how long such jobs take."""

    waiting: deque[Turn] = field(default_factory=deque)
    queued: float = 0.0  # seconds of work that waits
    served: float = 0.0  # seconds of the device that the lane has had
    promised: float = 0.0  # when the last one that was refused is to come back
    _units: float = 4.0 * FIXED_BYTES
    _seconds: float = 4.0 * FIXED_BYTES * FIRST_RATE

    def estimate(self, units: int) -> float:
        return units * self._seconds / self._units

    def learn(self, units: int, seconds: float) -> None:
        self._units = DECAY * self._units + units
        self._seconds = DECAY * self._seconds + seconds

    def remove(self, turn: Turn) -> None:
        self.waiting.remove(turn)
        self.queued = self.queued - turn.estimate if self.waiting else 0.0


class Turns:
    """`longest`: the longest expected wait in seconds, `setting` the variable that raises it."""

    def __init__(
        self, lanes: tuple[str, ...], longest: float, setting: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._lanes = {name: _Lane() for name in lanes}
        self._longest, self._setting, self._clock = longest, setting, clock
        self._at_hand = 0

    @asynccontextmanager
    async def turn(self, lane: str, size: int, gone: Gone | None = None, begun: bool = False) -> AsyncIterator[Turn]:
        """Wait for a turn of the device with a job of `size` bytes, and have it for the block.

        Raises Unavailable (503) at once where the wait is expected to be too long, unless it is for the next part of
        what has begun, and the Refusal of `client_gone` as soon as nobody waits for the answer any more.
        """
        chosen = self._lanes[lane]
        turn = self._queued(chosen, size + FIXED_BYTES, gone, begun)
        try:
            await _either(turn.admitted, gone)
            if is_gone(gone):
                raise client_gone()
            yield turn
        finally:
            self._leave(chosen, turn)

    def _expected_wait(self, lane: _Lane) -> float:
        """Seconds until a job that comes now would begin, of which the one that runs is no part."""
        return sum(min(lane.queued, other.queued) for other in self._lanes.values())

    def _queued(self, lane: _Lane, units: int, gone: Gone | None, begun: bool) -> Turn:
        estimate = lane.estimate(units)
        wait = self._expected_wait(lane)
        if wait > self._longest and not begun:
            raise self._too_long(lane, wait, estimate)
        turn = Turn(units, gone, estimate, asyncio.get_running_loop().create_future())
        if not lane.waiting:
            # A lane that was empty has no claim to the time that it did not use.
            lane.served = max(lane.served, min((other.served for other in self._busy()), default=lane.served))
        lane.waiting.append(turn)
        lane.queued += estimate
        self._admit()
        return turn

    def _busy(self) -> list[_Lane]:
        return [lane for lane in self._lanes.values() if lane.waiting]

    def _admit(self) -> None:
        """Give the next turns: to the lane that has had least, to its oldest job."""
        while self._at_hand < AT_HAND and (busy := self._busy()):
            lane = min(busy, key=lambda lane: lane.served)
            turn = lane.waiting[0]
            lane.remove(turn)
            lane.served += turn.estimate
            self._at_hand += 1
            turn.admitted.set_result(None)

    def _leave(self, lane: _Lane, turn: Turn) -> None:
        if not turn.admitted.done():
            turn.admitted.cancel()
            lane.remove(turn)
            return
        self._at_hand -= 1
        if turn.seconds is not None:
            lane.learn(turn.units, turn.seconds)
            lane.served += turn.seconds - turn.estimate
        self._admit()

    def _too_long(self, lane: _Lane, wait: float, estimate: float) -> Unavailable:
        detail = (
            f"{wait:.1f} s of work wait before this, over the longest wait of {self._longest:g} s; "
            f"send it again later, or raise {self._setting}"
        )
        return Unavailable(503, "busy", detail, retry_after=self._away(lane, wait, estimate))

    def _away(self, lane: _Lane, wait: float, estimate: float) -> int:
        """Seconds after which to come back: when half of the queue is done, one after the other as the device works."""
        now = self._clock()
        due = max(lane.promised, now + wait / 2)
        if due > now + LONGEST_AWAY:
            return round(random.uniform(LONGEST_AWAY / 2, LONGEST_AWAY))
        lane.promised = due + estimate * len(self._busy())
        return max(1, math.ceil(due - now))


def is_gone(gone: Gone | None) -> bool:
    """Whether nobody waits for the answer any more; may be asked from any thread."""
    return gone is not None and gone.done()


def present(gone: Gone | None, job: Callable[[], Result]) -> Callable[[], Result]:
    """The job, which does nothing for one who no longer waits for it."""

    def run() -> Result:
        if is_gone(gone):
            raise client_gone()
        return job()

    return run


def client_gone() -> Refusal:
    """Nobody waits for the answer; what it says reaches only the counter and the log."""
    return Refusal(400, "client-disconnected", "the connection ended before the batch was measured; it is not stored")


async def _either(admitted: "asyncio.Future[None]", gone: Gone | None) -> None:
    await asyncio.wait([admitted] if gone is None else [admitted, gone], return_when=asyncio.FIRST_COMPLETED)
