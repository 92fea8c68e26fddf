"""Roster: the workers as the supervisor knows them, which of them gets a connection, and when a dead one is replaced.

Plain values and arithmetic: no process, no socket.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from offpolicy_monitor.retry import doubled

#: A worker that has not taken a connection for so many seconds stands still: others get the next ones.
STANDS_STILL: Final = 1.0
#: Seconds between two looks at those who leave a connection waiting, and looks at which a worker has to stand still
#: until it is given up. They are counted, and not the seconds: where all of the service was stopped, none has passed.
LOOK_EVERY, GIVEN_UP = 1.0, 30
#: Seconds before a worker is replaced that died soon after the one before: the first wait, which doubles, the longest.
FIRST_WAIT, LONGEST_WAIT = 0.5, 30.0
#: A worker that served for so many seconds is replaced at once.
LONG_LIFE: Final = 60.0


@dataclass(eq=False)
class Load:
    """Connections of one worker. `handed` to it so far, of which it has `taken` so many; `open` when it said so."""

    open: int = 0
    taken: int = 0
    handed: int = 0
    waits_since: float = 0.0
    looks: int = 0

    @property
    def waits(self) -> bool:
        """Whether a connection is under way to it."""
        return self.handed > self.taken

    @property
    def total(self) -> int:
        """Those that it has or will have."""
        return self.open + self.handed - self.taken

    def hand(self, now: float) -> None:
        """One more is under way to it."""
        if not self.waits:
            self.waits_since = now
        self.handed += 1

    def told(self, taken: int, open: int, now: float) -> None:
        """The worker has said where it stands."""
        if taken != self.taken:
            self.waits_since = now
        self.taken, self.open = taken, open

    def stands_still(self, now: float) -> bool:
        """Whether it has left a connection waiting for too long."""
        return self.waits and now - self.waits_since > STANDS_STILL

    def looked_at(self, now: float) -> bool:
        """Count a look; whether it has now stood still at so many in a row that it is given up."""
        self.looks = self.looks + 1 if self.stands_still(now) else 0
        return self.looks == GIVEN_UP


def in_order(loads: Iterable[Load], now: float) -> list[int]:
    """Numbers of the workers in the order in which they should get the next connection: the fewest first."""
    keys = [(load.stands_still(now), load.total, number) for number, load in enumerate(loads)]
    return [number for _, _, number in sorted(keys)]


def excess(loads: Iterable[Load]) -> list[int]:
    """How many connections each has beyond an even share."""
    totals = [load.total for load in loads]
    share = -(-sum(totals) // max(1, len(totals)))
    return [max(0, total - share) for total in totals]


@dataclass
class Waits:
    """How long the replacement of one worker waits: not at all after a long life, ever longer after short ones."""

    deaths: int = field(default=0)

    def next(self, lived: float) -> float:
        """Seconds, where the worker that died has lived so long."""
        if lived >= LONG_LIFE:
            self.deaths = 0
        self.deaths += 1
        return 0.0 if self.deaths == 1 else doubled(self.deaths - 1, FIRST_WAIT, LONGEST_WAIT, chance=1)
