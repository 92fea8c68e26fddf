"""Pace: how fast the bytes of one reservation come, so that who brings none does not keep others out. Paced: the like.

Knows neither HTTP nor budgets. What counts is time spent waiting for the sender, not for room.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Protocol

#: Seconds of waiting for a sender before its pace is judged, for connections begin slowly; and how long it may stop.
GRACE: Final = 1.0
STANDS_STILL: Final = 3.0


class Paced(Protocol):
    """One who holds bytes for as long as another takes: a sender, or a reader."""

    @property
    def is_cut_off(self) -> bool: ...

    def lag(self) -> float: ...

    def cut_off(self) -> None: ...


@dataclass(eq=False)
class Pace:
    """Of `length` bytes, or more where that is not known, which are to come within `seconds` of waiting for them."""

    length: int
    seconds: float
    received: int = 0
    waited: float = 0.0
    is_cut_off: bool = False
    _since: float | None = None
    _cut: Callable[[], None] | None = None

    @contextmanager
    def waiting(self, cut: Callable[[], None]) -> Iterator[None]:
        """The block waits for the sender; `cut` ends that wait."""
        self._since, self._cut = time.monotonic(), cut
        try:
            yield
        finally:
            self.waited += time.monotonic() - self._since
            self._since = self._cut = None

    def lag(self) -> float:
        """Above 1: standing still, or so slow that not all would come in time. 0 where nobody waits for the sender."""
        if self._since is None:
            return 0.0
        still = time.monotonic() - self._since
        if self.waited + still < GRACE:
            return 0.0
        in_all = (self.waited + still) * self.length / max(self.received, 1)
        return max(in_all / self.seconds, still / STANDS_STILL)

    def cut_off(self) -> None:
        """End the wait for the sender, for good."""
        self.is_cut_off = True
        if self._cut is not None:
            self._cut()
