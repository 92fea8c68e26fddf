"""Drain: before Ray ends everything at once, what is in flight is answered, and what comes is told to come again.

Ray's end takes the proxy away together with the replicas: whatever was under way would be cut off. Knows no Ray.
"""

import asyncio
import time
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from offpolicy_monitor.errors import Unavailable
from offpolicy_monitor.server.http.problems import FAULT_KEY

#: How often it is looked whether anything is under way, seconds.
LOOKED_EVERY: Final = 0.05
RETRY_AFTER: Final = 2


class Drain:
    """Wraps an application, and counts what is under way in it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app, self._under_way, self._ends = app, 0, False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if self._ends:
            stopping = Unavailable(503, "stopping", "the service is stopping", retry_after=RETRY_AFTER)
            scope = {**scope, FAULT_KEY: stopping}
        self._under_way += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._under_way -= 1

    async def drain(self, within: float) -> int:
        """From now on refuse, with 503, what comes; return once nothing is under way, or how much still is then."""
        self._ends = True
        deadline = time.monotonic() + within
        while self._under_way and time.monotonic() < deadline:
            await asyncio.sleep(LOOKED_EVERY)
        return self._under_way
