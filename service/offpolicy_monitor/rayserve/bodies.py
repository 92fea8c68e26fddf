"""Bodies come to the service as it asks for them, and not before.

Ray would take a whole body, of any size, into a queue of its own while the service still waits for room, so that no
budget held. It does not where a client says that nobody is to be told of its leaving; in a replica every request is
given that header here. The service notices by itself when a client goes.

Ray names each answer as well, by the same header as the service, which has: here one of the two is taken away.
"""

from collections.abc import Iterable
from typing import Final

from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from offpolicy_monitor.server.http import request_ids

#: The header that Ray knows, and its value: a boolean of structured headers.
NOT_AHEAD: Final = (b"x-request-disconnect-disabled", b"?1")


class AsAskedFor:
    """Wraps the application of Ray's server in a replica."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_named_once(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": named_once(message.get("headers", ()))}
            await send(message)

        if scope["type"] == "http":
            headers = [header for header in scope["headers"] if header[0] != NOT_AHEAD[0]]
            scope = {**scope, "headers": [*headers, NOT_AHEAD]}
        await self._app(scope, receive, send_named_once)


def named_once(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """With the first id alone: the service's own, which its log has, where it has answered."""
    found, known = [], False
    for name, value in headers:
        is_id = name.lower() == request_ids.HEADER
        if not (is_id and known):
            found.append((name, value))
        known = known or is_id
    return found


def middlewares() -> list[Middleware]:
    """What Ray asks for by RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH."""
    return [Middleware(AsAskedFor)]
