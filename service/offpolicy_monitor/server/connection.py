"""The HTTP protocol with the bounds that uvicorn leaves open: size of a request's head, and time for it to arrive.

httptools accepts a head of 64 MiB and waits for it for ever. Bodies have their own limits (`server.body`).
"""

import asyncio

from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from offpolicy_monitor.server.problems import ProblemResponse

MAX_HEAD_BYTES = 64 * 1024
HEAD_TIMEOUT = 20.0


async def refuse_head(scope: Scope, receive: Receive, send: Send) -> None:
    """The application that a request with too large a head meets instead of the real one."""
    detail = f"the request line and headers are over {MAX_HEAD_BYTES} bytes"
    response = ProblemResponse(431, "head-too-large", detail, headers={"Connection": "close"})
    await response(scope, receive, send)


class BoundedProtocol(HttpToolsProtocol):
    """Answers 431 to a head over MAX_HEAD_BYTES; drops a connection whose head does not end.

    Not to end means: HEAD_TIMEOUT seconds, or MAX_HEAD_BYTES in further reads of the socket.
    """

    _in_head = False
    _unfinished_bytes = 0
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first head."""
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._head_ended()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Count what arrives while a head is unfinished."""
        was_in_head = self._in_head
        super().data_received(data)
        if was_in_head and self._in_head:
            self._unfinished_bytes += len(data)
            if self._unfinished_bytes > MAX_HEAD_BYTES:
                self.transport.close()

    def on_message_begin(self) -> None:
        """The first byte of a request."""
        self._in_head, self._unfinished_bytes = True, 0
        if self._deadline is None:
            self._await_head()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Judge the head, then let the right application answer."""
        self._head_ended()
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        self.app = self.config.loaded_app if size <= MAX_HEAD_BYTES else refuse_head
        super().on_headers_complete()

    def _await_head(self) -> None:
        self._deadline = self.loop.call_later(HEAD_TIMEOUT, self._drop)

    def _head_ended(self) -> None:
        self._in_head = False
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _drop(self) -> None:
        self._deadline = None
        if not self.transport.is_closing():
            self.transport.close()
