"""Board: a few bytes of memory that a service's processes share, for what each of them must know at any time.

Written without a lock: each byte has one writer at a time, and a reader may be a moment late. Made before the workers.
"""

import mmap
import struct
import time
from typing import Final

#: A leader that was seen so many seconds ago has a follower among the workers by now, or is about to have.
LED_FOR: Final = 10.0
_AT: Final = struct.Struct("d")
_SERVES, _LISTENS = 0, 1
_EACH: Final = 2


class Board:
    """Of so many workers, by their numbers."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._bytes = mmap.mmap(-1, _AT.size + _EACH * workers)

    def serves(self, worker: int) -> None:
        """It has started."""
        self._put(worker, _SERVES, True)

    def listens(self, worker: int, listens: bool) -> None:
        """Whether anybody listens to it."""
        self._put(worker, _LISTENS, listens)

    def gone(self, worker: int) -> None:
        """It has ended."""
        self._put(worker, _SERVES, False)
        self._put(worker, _LISTENS, False)

    def others(self, worker: int) -> list[int]:
        """The other workers that serve."""
        return [number for number in range(self.workers) if number != worker and self._has(number, _SERVES)]

    def others_listen(self, worker: int) -> bool:
        """Whether anybody listens to another worker."""
        return any(self._has(number, _LISTENS) for number in range(self.workers) if number != worker)

    def leads(self) -> None:
        """A worker of this service leads now."""
        _AT.pack_into(self._bytes, 0, time.monotonic())

    def led(self) -> bool:
        """Whether one of them has led lately."""
        (at,) = _AT.unpack_from(self._bytes, 0)
        return bool(at) and time.monotonic() - at < LED_FOR

    def _put(self, worker: int, which: int, holds: bool) -> None:
        self._bytes[_AT.size + _EACH * worker + which] = holds

    def _has(self, worker: int, which: int) -> bool:
        return bool(self._bytes[_AT.size + _EACH * worker + which])
