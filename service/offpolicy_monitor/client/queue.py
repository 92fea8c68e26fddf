"""ByteQueue: what waits to be sent, bounded in bytes; the oldest goes first, both to the service and overboard.

Room is reserved before a batch is copied, so that memory never exceeds the bound. The batch that is being sent counts,
and is not dropped while it is; one that waits to be sent again goes last, since the thread that sends still holds it.
Used by many threads that put and one that takes; it knows nothing of what it holds.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

Item = TypeVar("Item")


class ByteQueue(Generic[Item]):
    """A queue of at most `capacity` bytes; `dropped(count)` is called for what has to make room."""

    def __init__(self, capacity: int, dropped: Callable[[int], None]) -> None:
        self._capacity, self._dropped = capacity, dropped
        self._items: OrderedDict[int, tuple[int, Item]] = OrderedDict()
        self._changed = threading.Condition()
        self._next_ticket = 0
        self._busy: int | None = None
        self._resting: int | None = None
        self._reserved = 0
        self._closed = False
        self.used = 0

    def __len__(self) -> int:
        return len(self._items) + self._reserved

    def reserve(self, size: int) -> bool:
        """Make room for `size` bytes, dropping the oldest; False where even that does not make enough."""
        with self._changed:
            gone = 0
            while self.used + size > self._capacity and (oldest := self._droppable(size)) is not None:
                self._remove(oldest)
                gone += 1
            fits = self.used + size <= self._capacity
            if fits:
                self.used += size
                self._reserved += 1
        if gone:
            self._dropped(gone)
        return fits

    def release(self, size: int) -> None:
        """Give back room that was reserved and is not needed."""
        with self._changed:
            self.used -= size
            self._reserved -= 1
            self._changed.notify_all()

    def put(self, item: Item, size: int) -> None:
        """Queue an item into the room that was reserved for it."""
        with self._changed:
            self._reserved -= 1
            self._items[self._next_ticket] = (size, item)
            self._next_ticket += 1
            self._changed.notify_all()

    def take(self) -> tuple[int, Item] | None:
        """The oldest item and its ticket, once there is one; it stays until `done`. None when closed and empty."""
        with self._changed:
            self._changed.wait_for(lambda: self._items or self._closed)
            if not self._items:
                return None
            self._busy = next(iter(self._items))
            return self._busy, self._items[self._busy][1]

    def holds(self, ticket: int) -> bool:
        """Whether an item is still to be sent: it has not been dropped, nor given up at the end."""
        with self._changed:
            return ticket in self._items

    def rest(self, ticket: int, seconds: float) -> bool:
        """Sleep between two tries, during which the item may be dropped; False where it was."""
        end = time.monotonic() + seconds
        with self._changed:
            self._busy, self._resting = None, ticket
            while ticket in self._items and (left := end - time.monotonic()) > 0:
                self._changed.wait(left)
            self._busy, self._resting = ticket if ticket in self._items else None, None
            return self._busy is not None

    def done(self, ticket: int) -> bool:
        """Remove an item that was dealt with; False where it had been given up meanwhile."""
        with self._changed:
            self._busy = None
            return self._remove(ticket)

    def wait_empty(self, deadline: float) -> bool:
        """Wait until nothing is left, for at most `deadline` seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._items and not self._reserved, max(deadline, 0.0))

    def close(self) -> None:
        """Let `take` return None once the queue is empty."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def clear(self) -> int:
        """Give up all items, the one being sent included; how many there were."""
        with self._changed:
            tickets = list(self._items)
            for ticket in tickets:
                self._remove(ticket)
            return len(tickets)

    def _droppable(self, size: int) -> int | None:
        if size > self._capacity:
            return None  # nothing that is dropped would make it fit
        held = (self._busy, self._resting)
        last = self._resting if self._resting in self._items else None
        return next((ticket for ticket in self._items if ticket not in held), last)

    def _remove(self, ticket: int) -> bool:
        held = self._items.pop(ticket, None)
        if held is not None:
            self.used -= held[0]
            self._changed.notify_all()
        return held is not None
