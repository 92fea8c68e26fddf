"""Receiving: bodies come to the service as it asks for them, and not before.

Ray would take a whole body, of any size, into a queue of its own while the service still waits for room, so that no
budget held. It does not where a client says that nobody is to be told of its leaving; in a replica every request is
given that header here. The service notices by itself when a client goes.
"""

from typing import Final

from starlette.middleware import Middleware
from starlette.types import ASGIApp, Receive, Scope, Send

#: The header that Ray knows, and its value: a boolean of structured headers.
NOT_AHEAD: Final = (b"x-request-disconnect-disabled", b"?1")


class AsAskedFor:
    """Wraps the application of Ray's server in a replica."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = [header for header in scope["headers"] if header[0] != NOT_AHEAD[0]]
            scope = {**scope, "headers": [*headers, NOT_AHEAD]}
        await self._app(scope, receive, send)


def middlewares() -> list[Middleware]:
    """What Ray asks for by RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH."""
    return [Middleware(AsAskedFor)]
