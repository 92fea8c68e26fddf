"""Door: the listener, from which each connection is handed to the worker that has the fewest.

A worker that leaves connections waiting gets no more, and is killed where it does so for long. Knows seats by what they
have said, and starts no process.
"""

import selectors
import signal
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import structlog

from offpolicy_monitor.server.workers import channel as said
from offpolicy_monitor.server.workers.roster import LOOK_EVERY, in_order
from offpolicy_monitor.server.workers.seat import Seat

log = structlog.get_logger("offpolicy_monitor.server")
#: Connections taken before anything else is looked at.
TAKEN_AT_ONCE: Final = 64


class Door:
    """Of a listener that is bound and does not listen yet."""

    def __init__(self, listener: socket.socket, seats: Sequence[Seat], selector: selectors.BaseSelector) -> None:
        self.listener, self._seats, self._selector = listener, seats, selector
        self._held: socket.socket | None = None
        self._accepts = False
        self._looked = time.monotonic()

    def open(self, backlog: int) -> None:
        """Listen from now on."""
        self.listener.listen(backlog)
        self.listener.setblocking(False)
        self.accept(True)

    def close(self) -> None:
        """Take no more; who has connected already is handed on."""
        if self._accepts:
            self.take()
        self.accept(False)
        self.listener.close()
        if self._held is not None:
            self._held.close()

    def leave(self) -> None:
        """In a worker: nothing of it stays open."""
        for held in (self.listener, self._held):
            if held is not None:
                held.close()

    def take(self) -> None:
        """Take connections, and hand each on."""
        for _ in range(TAKEN_AT_ONCE):
            if self._held is None:
                try:
                    self._held, _ = self.listener.accept()
                except OSError:  # none is left, or no descriptor is: the kernel keeps them
                    return
                with suppress(OSError):
                    self._held.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if not self._handed(self._held):
                self.accept(False)
                return
            self._held.close()
            self._held = None

    def accept(self, accepts: bool) -> None:
        """Whether connections are taken; where nobody can have them, the kernel keeps them."""
        if accepts == self._accepts:
            return
        self._accepts = accepts
        if accepts:
            self._selector.register(self.listener, selectors.EVENT_READ)
        else:
            self._selector.unregister(self.listener)

    def wait(self, now: float) -> float | None:
        """Seconds until workers are to be looked at; None where none leaves a connection waiting."""
        waiting = any(seat.serves and seat.load.waits for seat in self._seats)
        return max(0.0, self._looked + LOOK_EVERY - now) if waiting else None

    def look(self, now: float) -> None:
        """Find out who stands still; kill who has for too long: what it has would wait for ever."""
        if now - self._looked < LOOK_EVERY:
            return
        self._looked = now
        for seat in self._seats:
            if seat.serves:
                self.note_standstill(seat, now)
                if seat.load.looked_at(now):
                    log.error("a worker has stood still for too long, and is killed", **_which(seat))
                    seat.signal(signal.SIGKILL)

    def note_standstill(self, seat: Seat, now: float) -> None:
        """Say where a worker begins to stand still, or goes on."""
        if seat.load.stands_still(now) != seat.stood_still:
            seat.stood_still = not seat.stood_still
            if seat.stood_still:
                log.error("a worker stands still: others get its connections", **_which(seat))
            else:
                log.info("a worker goes on", **_which(seat))

    def _handed(self, connection: socket.socket) -> bool:
        """Whether a worker gets it; else it waits, as all do after it, until one can take it."""
        now = time.monotonic()
        serving = [seat for seat in self._seats if seat.serves and not seat.leaves]
        for seat in serving:
            self.note_standstill(seat, now)
        for number in in_order([seat.load for seat in serving], now):
            seat = serving[number]
            assert seat.channel is not None
            if seat.channel.send(said.CONNECTION, connection):
                seat.load.hand(now)
                return True
        return False


def _which(seat: Seat) -> dict[str, int]:
    return {"worker": seat.number + 1, "pid": seat.pid}
