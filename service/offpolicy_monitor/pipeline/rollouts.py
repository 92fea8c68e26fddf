"""RolloutCache: first halves of the two-phase form, kept in memory until their second halves come.

Bounded in bytes (the oldest go first) and in time. A half serves every gradient step that names it, so joining does not
remove it. What is gone answers 410 and the client sends the whole shard again. Used by several threads.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

from offpolicy_monitor.errors import FieldError, Refusal

Key = tuple[str, str, int]
Half = TypeVar("Half")


class RolloutGone(Refusal):
    """The half of this key is gone, or never came here."""

    def __init__(self, key: Key) -> None:
        message = (
            f"rollout: the first half of {key[1]!r}, shard {key[2]}, is not here (any more); send the whole shard "
            "(OFFPOLICY_ROLLOUT_TTL and OFFPOLICY_ROLLOUT_BYTES say what is kept)"
        )
        super().__init__(410, "rollout-gone", message, [FieldError("rollout", message.removeprefix("rollout: "))])
        self.key = key


class RolloutCache(Generic[Half]):
    """Halves by (run, rollout, shard)."""

    def __init__(self, capacity: int, ttl: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._capacity, self._ttl, self._clock = capacity, ttl, clock
        self._halves: OrderedDict[Key, tuple[float, int, Half]] = OrderedDict()
        self._lock = threading.Lock()
        self.used = 0

    def keep(self, key: Key, half: Half, size: int) -> bool:
        """Keep a half of `size` bytes in place of any earlier one; False where it is larger than the whole cache."""
        with self._lock:
            self._drop(key)
            if size > self._capacity:
                return False
            self._halves[key] = (self._clock(), size, half)
            self.used += size
            self._evict()
            return True

    def find(self, key: Key) -> Half:
        """The half kept under `key`; RolloutGone (410) where it is gone or never came."""
        found = self.kept(key)
        if found is None:
            raise RolloutGone(key)
        return found

    def kept(self, key: Key) -> Half | None:
        """The half kept under `key`; None where it is gone or never came."""
        with self._lock:
            self._evict()
            held = self._halves.get(key)
        return None if held is None else held[2]

    def drop(self, key: Key) -> None:
        """Another process keeps a newer half of that key."""
        with self._lock:
            self._drop(key)

    def forget(self, run: str) -> None:
        """Drop every half of a run."""
        with self._lock:
            for key in [key for key in self._halves if key[0] == run]:
                self._drop(key)

    def _evict(self) -> None:
        """Drop the oldest while there are too many bytes, and everything past its time."""
        oldest_allowed = self._clock() - self._ttl
        while self._halves:
            key, (kept_at, _, _) = next(iter(self._halves.items()))
            if self.used <= self._capacity and kept_at >= oldest_allowed:
                return
            self._drop(key)

    def _drop(self, key: Key) -> None:
        held = self._halves.pop(key, None)
        if held is not None:
            self.used -= held[1]
