"""Turns: which job the device does next, and which it cannot do in time and is told so at once.

Jobs wait in lanes that share the device's time equally while they have any, so that a storm of large shards does not
keep small ones away; within a lane they are served in order of arrival. What a job will take is estimated from what
the lane's last ones took by size. A job whose wait would be too long is refused with the time to come back, and no two
are given the same. For every thread; knows neither what is computed, nor who waits for it, nor HTTP.
"""

import math
import random
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from offpolicy_monitor.errors import Unavailable

Job = TypeVar("Job")

#: What every job costs besides its bytes, in bytes: a shard of 2,000 tokens takes a tenth of one of 200,000.
FIXED_BYTES: Final = 256 * 1024
#: Seconds a byte before anything was measured.
FIRST_RATE: Final = 1e-7
#: How much the last job weighs against those before it, a tenth of whose weight is lost with each.
DECAY: Final = 0.9
#: No one is told to stay away for longer, seconds: by then the queue is another one.
LONGEST_AWAY: Final = 60.0


@dataclass(eq=False)
class Turn(Generic[Job]):
    """One job's turn: in which lane, and what it was estimated at in seconds."""

    job: Job
    units: int
    estimate: float
    lane: "_Lane[Job]"


@dataclass(eq=False)
class _Lane(Generic[Job]):
    """Jobs that wait in order of arrival, and what is known of how long such jobs take."""

    waiting: deque[Turn[Job]] = field(default_factory=deque)
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

    def remove(self, turn: Turn[Job]) -> None:
        self.waiting.remove(turn)
        self.queued = self.queued - turn.estimate if self.waiting else 0.0


class Turns(Generic[Job]):
    """`longest`: the longest expected wait in seconds, `setting` the variable that raises it; `at_once`: how many jobs
    are done at a time.
    """

    def __init__(
        self,
        lanes: tuple[str, ...],
        longest: float,
        setting: str,
        clock: Callable[[], float] = time.monotonic,
        at_once: int = 1,
    ) -> None:
        self._lanes: dict[str, _Lane[Job]] = {name: _Lane() for name in lanes}
        self._longest, self._setting, self._clock, self._at_once = longest, setting, clock, at_once
        self._lock = threading.Lock()

    def enter(self, lane: str, size: int, job: Job, begun: bool = False) -> Turn[Job]:
        """Let a job of `size` bytes wait for its turn.

        Raises Unavailable (503) at once where the wait is expected to be too long, unless it is for the next part of
        what has begun.
        """
        with self._lock:
            chosen, units = self._lanes[lane], size + FIXED_BYTES
            estimate, wait = chosen.estimate(units), self._expected_wait(chosen)
            if wait > self._longest and not begun:
                raise self._too_long(chosen, wait, estimate)
            if not chosen.waiting:
                # A lane that was empty has no claim to the time that it did not use.
                others = [other.served for other in self._busy()]
                chosen.served = max(chosen.served, min(others, default=chosen.served))
            turn = Turn(job, units, estimate, chosen)
            chosen.waiting.append(turn)
            chosen.queued += estimate
            return turn

    def next(self) -> Turn[Job] | None:
        """The next one, which waits no more: of the lane that has had least, the oldest; None where none waits."""
        with self._lock:
            busy = self._busy()
            if not busy:
                return None
            lane = min(busy, key=lambda lane: lane.served)
            turn = lane.waiting[0]
            lane.remove(turn)
            lane.served += turn.estimate
            return turn

    def leave(self, turn: Turn[Job]) -> bool:
        """Wait no longer; whether it still did."""
        with self._lock:
            waited = turn in turn.lane.waiting
            if waited:
                turn.lane.remove(turn)
            return waited

    def took(self, turn: Turn[Job], seconds: float) -> None:
        """What a job that had its turn took of the device."""
        with self._lock:
            turn.lane.learn(turn.units, seconds)
            turn.lane.served += seconds - turn.estimate

    def _expected_wait(self, lane: _Lane[Job]) -> float:
        """Seconds until a job that comes now would begin, of which those that run are no part."""
        return sum(min(lane.queued, other.queued) for other in self._lanes.values()) / self._at_once

    def _busy(self) -> list[_Lane[Job]]:
        return [lane for lane in self._lanes.values() if lane.waiting]

    def _too_long(self, lane: _Lane[Job], wait: float, estimate: float) -> Unavailable:
        detail = (
            f"{wait:.1f} s of work wait before this, over the longest wait of {self._longest:g} s; "
            f"send it again later, or raise {self._setting}"
        )
        return Unavailable(503, "busy", detail, retry_after=self._away(lane, wait, estimate))

    def _away(self, lane: _Lane[Job], wait: float, estimate: float) -> int:
        """Seconds after which to come back: when half of the queue is done, one after the other as the device works."""
        now = self._clock()
        due = max(lane.promised, now + wait / 2)
        if due > now + LONGEST_AWAY:
            return round(random.uniform(LONGEST_AWAY / 2, LONGEST_AWAY))
        lane.promised = due + estimate * len(self._busy()) / self._at_once
        return max(1, math.ceil(due - now))
