"""Handed: the connections of one worker, which come from the supervisor, each as a descriptor over the channel.

It stands where uvicorn has a listening server. Says how many connections there are, and stops the worker where the
supervisor says so or is no more.
"""

import asyncio
import signal
import socket
from collections.abc import Callable, Sized
from typing import Final, Protocol

import structlog

from offpolicy_monitor.server.workers import channel as said
from offpolicy_monitor.server.workers.channel import Channel, Gone

log = structlog.get_logger("offpolicy_monitor.server")
#: Messages read before anything else is done.
AT_ONCE: Final = 64


class Takes(Protocol):
    """What becomes of a connection."""

    def take(self, connection: socket.socket) -> None: ...
    def close(self) -> None: ...
    def under_way(self) -> int: ...


class InTheClear:
    """Connections that are served as they come."""

    def __init__(self, made: Callable[[], asyncio.Protocol]) -> None:
        self._made, self._loop = made, asyncio.get_running_loop()
        self._under_way: set[asyncio.Task[None]] = set()

    def take(self, connection: socket.socket) -> None:
        """Serve it."""
        connection.setblocking(False)
        task = self._loop.create_task(self._serve(connection))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    def close(self) -> None:
        """What was taken is served."""

    def under_way(self) -> int:
        """Those that are no connections yet."""
        return len(self._under_way)

    async def _serve(self, connection: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._made, connection)
        except OSError:  # the client has gone again
            connection.close()


class Handed:
    """Made inside a running loop. `connections` are those that are served now.

    `stop` is given the signal that says so, `shed` a number of connections to let go, `relayed` whom a message of a
    sibling is from, and the message, and `missed` is called where one was lost.
    """

    def __init__(
        self,
        channel: Channel,
        takes: Takes,
        connections: Sized,
        stop: Callable[[int], None],
        shed: Callable[[int], None],
        relayed: Callable[[int, bytes], None],
        missed: Callable[[], None],
    ) -> None:
        self._channel, self._takes, self._connections = channel, takes, connections
        self._stop, self._shed, self._relayed, self._missed = stop, shed, relayed, missed
        self._taken = 0
        self._reported = (-1, -1)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(channel.fileno(), self._read)

    def close(self) -> None:
        """Serve no further connections; messages are read on."""
        self._takes.close()

    async def wait_closed(self) -> None:
        """It is."""

    def report(self) -> None:
        """Say how many connections there are, where that is news."""
        now = self._taken, len(self._connections) + self._takes.under_way()
        if now != self._reported:
            content = b"".join(number.to_bytes(4, "big") for number in now)
            if self._channel.send(said.LOAD + content):
                self._reported = now

    def _read(self) -> None:
        for _ in range(AT_ONCE):
            try:
                got = self._channel.receive()
            except Gone:
                self._loop.remove_reader(self._channel.fileno())
                log.error("the supervisor is gone, so this worker ends")
                self._stop(signal.SIGTERM)
                return
            if got is None:
                break
            self._heard(*got)
        self.report()

    def _heard(self, message: bytes, connection: socket.socket | None) -> None:
        kind, content = message[:1], message[1:]
        if connection is not None:
            self._taken += 1
            self._takes.take(connection)
        elif kind == said.STOP:
            self._stop(content[0])
        elif kind == said.SHED:
            self._shed(int.from_bytes(content, "big"))
        elif kind == said.RELAY:
            self._relayed(content[0], content[1:])
        elif kind == said.MISSED:
            self._missed()
