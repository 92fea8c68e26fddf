"""BodyBudget: the bytes of request bodies in memory, with a share that large bodies cannot take from small ones.

Knows sizes and paces; nothing of HTTP.
"""

from typing import Final

from offpolicy_monitor.pipeline.admission import ByteBudget, Reservation
from offpolicy_monitor.pipeline.pace import Pace

#: The part of the budget that is for small bodies alone, one in SHARE, and the largest body that is small: a fourth of
#: that, SMALL at most.
SHARE: Final = 8
SMALL: Final = 1 << 20


class BodyBudget:
    """`capacity` bytes for all bodies; `setting` is the variable that raises it."""

    def __init__(self, capacity: int, timeout: float, setting: str) -> None:
        share = capacity // SHARE
        self._largest_small = min(SMALL, share // 4)
        self._small = ByteBudget(max(share, 1), timeout, setting)
        self._large = ByteBudget(max(capacity - share, 1), timeout, setting)

    @property
    def used(self) -> int:
        """Bytes held by bodies of either kind."""
        return self._small.used + self._large.used

    def reserve(self, first: int, length: int | None, pace: Pace) -> Reservation:
        """Hold `first` bytes of a body of `length`, to be grown; one of unknown length may be large."""
        is_small = length is not None and length <= self._largest_small
        return (self._small if is_small else self._large).reserve(first, pace)
