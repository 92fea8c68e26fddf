"""Where plain functions of routes run: those that ask the store in threads of their own.

The framework would run them in the threads that it has for everything, and a store that hangs would then keep
/metrics, /docs and the files of the pages waiting too.
"""

from collections.abc import Callable
from functools import partial, wraps
from inspect import iscoroutinefunction
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.routing import APIRoute
from starlette.types import Receive, Scope, Send

from offpolicy_monitor.server import services
from offpolicy_monitor.server.http.answers import json_response
from offpolicy_monitor.server.http.queries import CHECKED
from offpolicy_monitor.server.http.room import with_room


def asks_the_store(endpoint: Callable[..., Any]) -> Callable[..., Any]:
    """The endpoint, run by the readers of the services; it must take the `request`."""

    @wraps(endpoint)
    async def in_a_reader(**values: Any) -> Any:
        request: Request = values["request"]
        return await services.of(request).readers.run(partial(endpoint, **values))

    return in_a_reader


class StoreRoute(APIRoute):
    """A route whose endpoint asks the store and gives a value, which is answered as JSON. Its answers need room.

    A coroutine sees to all of it itself.
    """

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer where there is room for one more answer."""
        await with_room(super().handle, scope, receive, send)

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        asked = endpoint if iscoroutinefunction(endpoint) else asks_the_store(_as_json(endpoint))
        options["response_model"] = None
        super().__init__(path, asked, **options)


def store_router() -> APIRouter:
    """A router for questions to the store."""
    return APIRouter(prefix="/v1", tags=["reading"], route_class=StoreRoute, dependencies=CHECKED)


def _as_json(endpoint: Callable[..., Any]) -> Callable[..., Response]:
    @wraps(endpoint)
    def answer(**values: Any) -> Response:
        return json_response(endpoint(**values))

    return answer
