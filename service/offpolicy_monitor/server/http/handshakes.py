"""Handshakes: the server that encrypts each connection before it speaks HTTP, bounded in number and in time.

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
    """Accepts from `listener` once it is made, inside a running loop; a protocol is `made` for each connection."""

    def __init__(
        self,
        listener: socket.socket,
        backlog: int,
        context: ssl.SSLContext,
        made: Callable[[], asyncio.Protocol],
        most: int = MOST,
        grace: float = GRACE,
    ) -> None:
        self.sockets = [listener]
        self._context, self._made, self._most, self._grace = context, made, most, grace
        self._under_way: dict[socket.socket, tuple[asyncio.Task[None], float]] = {}
        self._finished = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        listener.setblocking(False)
        listener.listen(backlog)
        self._accepting = self._loop.create_task(self._accept(listener))

    def close(self) -> None:
        """Accept nothing more, and end the handshakes that are under way."""
        self._accepting.cancel()
        for connection in list(self._under_way):
            self._end(connection)

    async def wait_closed(self) -> None:
        """Return once nothing more is accepted."""
        await asyncio.wait([self._accepting])

    async def _accept(self, listener: socket.socket) -> None:
        while True:
            await self._room()
            try:
                connection, _ = await self._loop.sock_accept(listener)
                self._begin(connection)
                for _ in range(min(AT_ONCE, self._most - len(self._under_way))):
                    connection, _ = listener.accept()
                    connection.setblocking(False)
                    self._begin(connection)
            except BlockingIOError:  # nobody else waits
                continue
            except OSError:  # no descriptor is left, or the client has gone again
                await asyncio.sleep(BREATH)

    async def _room(self) -> None:
        """Return where there is room for one more handshake: one has finished, or the oldest has ended."""
        while len(self._under_way) >= self._most:
            oldest, (_, since) = next(iter(self._under_way.items()))
            left = since + self._grace - self._loop.time()
            if left <= 0:
                self._end(oldest)
                return
            self._finished.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._finished.wait(), left)

    def _begin(self, connection: socket.socket) -> None:
        self._under_way[connection] = self._loop.create_task(self._shake(connection)), self._loop.time()

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
