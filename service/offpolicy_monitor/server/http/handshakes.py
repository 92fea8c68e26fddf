"""Handshakes: each connection is encrypted before it speaks HTTP, bounded in number and in time.

asyncio's own tells nobody of a connection before its handshake is done, and waits a minute for that: clients that say
nothing would take all descriptors. Here the oldest unfinished handshake ends for a new one, once it had time to finish.
Until then who comes waits with the kernel, so that of clients that all come at once none is cut off. Knows no HTTP.
"""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from typing import Final

#: How long a handshake may take, seconds, and how many may be under way.
TIMEOUT: Final = 10.0
MOST: Final = 64
#: How long one is left alone though others wait, seconds. One takes some milliseconds, on a busy machine a tenth of it.
GRACE: Final = 1.0
#: Connections accepted in a turn of the event loop.
AT_ONCE: Final = 16
#: How long nothing is accepted where the process has no descriptor left, seconds.
BREATH: Final = 0.1


class Handshakes:
    """Of connections that were accepted, inside a running loop; a protocol is `made` for each that is encrypted."""

    def __init__(
        self,
        context: ssl.SSLContext,
        made: Callable[[], asyncio.Protocol],
        most: int = MOST,
        grace: float = GRACE,
    ) -> None:
        self._context, self._made, self._most, self._grace = context, made, most, grace
        self._under_way: dict[socket.socket, tuple[asyncio.Task[None], float]] = {}
        self._finished = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    @property
    def left(self) -> int:
        """How many more there may be."""
        return self._most - len(self._under_way)

    def begin(self, connection: socket.socket) -> None:
        """Begin with a connection; there is room for it."""
        connection.setblocking(False)
        self._under_way[connection] = self._loop.create_task(self._shake(connection)), self._loop.time()

    def under_way(self) -> int:
        """How many there are."""
        return len(self._under_way)

    def close(self) -> None:
        """End those that are under way."""
        for connection in list(self._under_way):
            self._end(connection)

    async def room(self) -> None:
        """Return where there is room for one more handshake: one has finished, or the oldest has ended."""
        while self.left <= 0:
            oldest, (_, since) = next(iter(self._under_way.items()))
            left = since + self._grace - self._loop.time()
            if left <= 0:
                self._end(oldest)
                return
            self._finished.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._finished.wait(), left)

    def _end(self, connection: socket.socket) -> None:
        task, _ = self._under_way.pop(connection)
        task.cancel()
        with contextlib.suppress(OSError):  # the client was quicker
            connection.shutdown(socket.SHUT_RDWR)

    async def _shake(self, connection: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(
                self._made, connection, ssl=self._context, ssl_handshake_timeout=TIMEOUT
            )
        except OSError:  # no TLS, no version in common, given up, too late
            connection.close()
        finally:
            self._under_way.pop(connection, None)
            self._finished.set()


class Accepting:
    """Accepts from `listener` once it is made, inside a running loop, as handshakes have room."""

    def __init__(self, listener: socket.socket, backlog: int, handshakes: Handshakes) -> None:
        self.sockets = [listener]
        self._handshakes = handshakes
        self._loop = asyncio.get_running_loop()
        listener.setblocking(False)
        listener.listen(backlog)
        self._accepting = self._loop.create_task(self._accept(listener))

    def close(self) -> None:
        """Accept nothing more, and end the handshakes that are under way."""
        self._accepting.cancel()
        self._handshakes.close()

    async def wait_closed(self) -> None:
        """Return once nothing more is accepted."""
        await asyncio.wait([self._accepting])

    async def _accept(self, listener: socket.socket) -> None:
        while True:
            await self._handshakes.room()
            try:
                connection, _ = await self._loop.sock_accept(listener)
                self._handshakes.begin(connection)
                for _ in range(min(AT_ONCE, self._handshakes.left)):
                    connection, _ = listener.accept()
                    self._handshakes.begin(connection)
            except BlockingIOError:  # nobody else waits
                continue
            except OSError:  # no descriptor is left, or the client has gone again
                await asyncio.sleep(BREATH)


class Queued:
    """Connections that were accepted elsewhere, and wait until handshakes have room."""

    def __init__(self, handshakes: Handshakes) -> None:
        self._handshakes = handshakes
        self._waiting: asyncio.Queue[socket.socket] = asyncio.Queue()
        self._beginning = asyncio.get_running_loop().create_task(self._begin())

    def take(self, connection: socket.socket) -> None:
        """Begin with a connection in its turn."""
        self._waiting.put_nowait(connection)

    def under_way(self) -> int:
        """Those that are no connections yet."""
        return self._handshakes.under_way() + self._waiting.qsize()

    def close(self) -> None:
        """Begin nothing more, and end the handshakes that are under way."""
        self._beginning.cancel()
        while not self._waiting.empty():
            self._waiting.get_nowait().close()
        self._handshakes.close()

    async def _begin(self) -> None:
        while True:
            connection = await self._waiting.get()
            await self._handshakes.room()
            self._handshakes.begin(connection)
