"""Answering: an answer leaves by its connection in pieces, each given when the client has taken those before it.

Without it a large answer lies in the transport's buffer as a whole, for each client that does not read. Knows ASGI and
the request's cycle in uvicorn; nothing of what is answered.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

#: Bytes given to the transport at a time: its high-water mark, so that at most two pieces wait in it.
PIECE: Final = 64 * 1024


class Answering:
    """The application of one request. `cycle` is uvicorn's, given once it is made, and told to `begins` in its turn."""

    def __init__(self, app: ASGIApp, begins: Callable[[Any], None]) -> None:
        self._app, self._begins = app, begins
        self.cycle: Any = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._begins(self.cycle)

        async def give(message: Message) -> None:
            if message["type"] == "http.response.start" and self.cycle.more_body:
                # The rest of this request's body is not wanted; where it ends, and another begins, is not looked for.
                self.cycle.keep_alive = False
            for part in _parts(message):
                await send(part)

        await self._app(scope, receive, give)


def _parts(message: Message) -> Iterator[Message]:
    """The message itself, or as many as its body has pieces."""
    body = message.get("body", b"")
    if len(body) <= PIECE:
        yield message
        return
    view, more = memoryview(body), message.get("more_body", False)
    for start in range(0, len(view), PIECE):
        yield {**message, "body": view[start : start + PIECE], "more_body": more or start + PIECE < len(view)}
