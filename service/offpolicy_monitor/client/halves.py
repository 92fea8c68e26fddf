"""Halves: first halves of rollouts, kept so that a shard can be sent whole where the service has lost the first one.

Bounded in bytes; the oldest go first. The arrays are those that were sent: keeping them copies nothing. Knows no HTTP.
"""

import threading
from collections import OrderedDict

from offpolicy_monitor.client.shard import Shard

Key = tuple[str, int]


class Halves:
    """First halves by (rollout, shard), at most `capacity` bytes of them."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._halves: OrderedDict[Key, Shard] = OrderedDict()
        self._lock = threading.Lock()
        self.used = 0

    def keep(self, key: Key, half: Shard) -> None:
        """Keep a half in place of an earlier one of that name."""
        with self._lock:
            self._remove(key)
            self._halves[key] = half
            self.used += half.nbytes
            while self.used > self._capacity:
                self._remove(next(iter(self._halves)))

    def find(self, key: Key | None) -> Shard | None:
        """The half kept under that name, None where it is gone or never was."""
        with self._lock:
            return None if key is None else self._halves.get(key)

    def _remove(self, key: Key) -> None:
        held = self._halves.pop(key, None)
        if held is not None:
            self.used -= held.nbytes
