"""Rooms: memory that is used again, bounded by its bytes: what was used longest ago goes first. For every thread."""

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

Owner = TypeVar("Owner", bound=Hashable)
Room = TypeVar("Room")


class Rooms(Generic[Owner, Room]):
    """Rooms by whose they are, `most` bytes of them."""

    def __init__(self, most: int) -> None:
        self._most, self._lock = most, threading.Lock()
        self._rooms: OrderedDict[Owner, list[tuple[Room, int]]] = OrderedDict()
        self.used = 0

    def taken(self, owner: Owner) -> Room | None:
        """One of an owner's, which is the caller's now; None where there is none."""
        with self._lock:
            return self._popped(owner) if owner in self._rooms else None

    def give(self, owner: Owner, room: Room, size: int) -> None:
        """Keep a room of so many bytes for its owner."""
        with self._lock:
            self._rooms.setdefault(owner, []).append((room, size))
            self._rooms.move_to_end(owner)
            self.used += size
            while self.used > self._most:
                self._popped(next(iter(self._rooms)))

    def _popped(self, owner: Owner) -> Room:
        rooms = self._rooms[owner]
        room, size = rooms.pop()
        self.used -= size
        if not rooms:
            del self._rooms[owner]
        return room
