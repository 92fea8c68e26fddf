"""RequestMiddleware: names, counts, times and logs each request; a defect becomes a 500 that is still a document.

Pure ASGI, outside of the exception handlers. Labels are route templates, never paths, so that a client cannot make
series. Client text reaches a log line only as a field.
"""

import logging
import time
from typing import Any

import structlog
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from offpolicy_monitor.errors import Refusal
from offpolicy_monitor.exposition.process import ProcessMetrics
from offpolicy_monitor.server.http import request_ids
from offpolicy_monitor.server.http.problems import FAULT_KEY, SCOPE_KEY, ProblemResponse, refusal_of

log = structlog.get_logger("offpolicy_monitor.http")
#: Where its lines go: structlog puts a logger together for each line, also for one that nobody wants.
lines = logging.getLogger("offpolicy_monitor.http")
DETAIL_SHOWN = 500
NAME_SHOWN = 128
#: In the scope of a request whose answer's body nobody will see.
HEAD_KEY = "offpolicy_monitor.head"
QUIET = {"/metrics", "/healthz", "/readyz"}
DEFECT = "the service failed on this request; its log has the traceback"


class RequestMiddleware:
    """Wraps the application."""

    def __init__(self, app: ASGIApp, metrics: ProcessMetrics) -> None:
        self.app = app
        self.metrics = metrics
        self._make_id = request_ids.maker()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        method = scope["method"]
        if method == "HEAD":
            # What GET would answer, without its body (`_Exchange.send`).
            scope = {**scope, "method": "GET", HEAD_KEY: True}
        scope[request_ids.ID_KEY] = request_ids.sent(scope["headers"]) or self._make_id()
        await _Exchange(scope, send, self.metrics, method).run(self.app, receive)


class _Exchange:
    """One request and its answer."""

    def __init__(self, scope: Scope, send: Send, metrics: ProcessMetrics, method: str) -> None:
        self.scope, self._send, self.metrics, self.method = scope, send, metrics, method
        self.status = 0
        self.started = time.perf_counter()

    async def run(self, app: ASGIApp, receive: Receive) -> None:
        try:
            if fault := self.scope.get(FAULT_KEY):
                await self._refuse(fault, receive)
            else:
                await app(self.scope, receive, self.send)
        except Exception as error:
            await self._defect(error, receive)
        finally:
            self._record()

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            named = (request_ids.HEADER, self.scope[request_ids.ID_KEY].encode())
            message["headers"] = [*message.get("headers", ()), named]
        elif self.method == "HEAD":
            message = {**message, "body": b""}
        await self._send(message)

    async def _refuse(self, fault: Refusal, receive: Receive) -> None:
        await refusal_of(self.scope, fault)(self.scope, receive, self.send)

    async def _defect(self, error: Exception, receive: Receive) -> None:
        """Log the traceback; answer 500 unless an answer is already on its way, which can only be cut off."""
        log.error("defect", request_id=self.scope[request_ids.ID_KEY], route=_template(self.scope), exc_info=error)
        response = self.scope[SCOPE_KEY] = ProblemResponse(500, "internal", DEFECT)
        if self.status:
            raise error
        await response(self.scope, receive, self.send)

    def _record(self) -> None:
        route, problem = _template(self.scope), self.scope.get(SCOPE_KEY)
        seconds = time.perf_counter() - self.started
        self.metrics.request(route, self.status, seconds)
        if problem is not None:
            self.metrics.rejected(problem.kind)
        level = logging.DEBUG if route in QUIET and self.status < 400 else logging.INFO
        if not lines.isEnabledFor(level):
            return
        named = {name: str(value)[:NAME_SHOWN] for name, value in self.scope.get("path_params", {}).items()}
        fields: dict[str, Any] = {"method": self.method, "route": route, **named}
        fields |= {"status": self.status, "ms": round(seconds * 1e3, 1), "request_id": self.scope[request_ids.ID_KEY]}
        if problem is not None:
            fields |= {"problem": problem.kind, "detail": problem.detail[:DETAIL_SHOWN]}
        log.log(level, "request", **fields)


def _template(scope: Scope) -> str:
    route = scope.get("route")
    return getattr(route, "path", "unmatched") if isinstance(route, BaseRoute) else "unmatched"
