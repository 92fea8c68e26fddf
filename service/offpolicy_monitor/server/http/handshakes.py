"""Handshakes: the server that encrypts each connection before it speaks HTTP, bounded in number and in time.

asyncio's own tells nobody of a connection before its handshake is done, and waits a minute for that: clients that say
nothing would take all descriptors. Here the oldest unfinished handshake ends for a new one. Knows TLS, no HTTP.
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
    ) -> None:
        self.sockets = [listener]
        self._context, self._made, self._most = context, made, most
        self._under_way: dict[socket.socket, asyncio.Task[None]] = {}
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
            try:
                connection, _ = await self._loop.sock_accept(listener)
            except OSError:  # no descriptor is left, or the client has gone again
                await asyncio.sleep(BREATH)
                continue
            if len(self._under_way) >= self._most:
                self._end(next(iter(self._under_way)))
            self._under_way[connection] = self._loop.create_task(self._shake(connection))

    def _end(self, connection: socket.socket) -> None:
        self._under_way.pop(connection).cancel()
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
