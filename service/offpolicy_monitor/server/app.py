"""create_app: the whole service as one ASGI application. All wiring is here; nothing starts at import."""

import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from prometheus_client import CollectorRegistry
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Receive, Scope, Send

from offpolicy_monitor._version import __version__
from offpolicy_monitor.exposition.process import ProcessMetrics
from offpolicy_monitor.pipeline.values import Measurer
from offpolicy_monitor.server import openapi, rehearsal, services
from offpolicy_monitor.server.access.described import describe
from offpolicy_monitor.server.access.doors import Doors
from offpolicy_monitor.server.access.guard import Guard
from offpolicy_monitor.server.access.keys import Keys
from offpolicy_monitor.server.http import handlers
from offpolicy_monitor.server.http.answers import render
from offpolicy_monitor.server.http.hosts import TrustedHosts
from offpolicy_monitor.server.http.middleware import RequestMiddleware
from offpolicy_monitor.server.routes import (
    alerts,
    batches,
    checks,
    diagnosis,
    evaluate,
    events,
    figures,
    health,
    histograms,
    pages,
    recommendations,
    runbook,
    runs,
    scrape,
    whatif,
    worst,
)
from offpolicy_monitor.server.workers.membership import ALONE, Membership
from offpolicy_monitor.settings import Settings

PARTS = (
    batches,
    evaluate,
    runs,
    whatif,
    recommendations,
    worst,
    diagnosis,
    checks,
    alerts,
    events,
    figures,
    histograms,
    health,
    scrape,
    runbook,
    pages,
)
#: Made when they are imported, whatever the settings of an application are.
ROUTES = tuple(route for part in PARTS for route in part.router.routes)


class Application(FastAPI):
    """FastAPI whose document also holds the shapes of problems; in front of it what is `direct` is answered."""

    #: Whether a request is answered in front of the framework, and by what.
    direct: Sequence[tuple[Callable[[Scope], bool], ASGIApp]] = ()

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._text, self._one_at_a_time = b"", threading.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """What is direct goes to its route through nothing but what stands around every answer."""
        for is_direct, answer in self.direct:
            if is_direct(scope):
                scope["app"] = self
                return await answer(scope, receive, send)
        await super().__call__(scope, receive, send)

    def openapi(self) -> dict[str, Any]:
        """The OpenAPI document."""
        document = super().openapi()
        document["components"]["schemas"].update(openapi.problem_schemas())
        describe(document)
        return document

    def openapi_text(self) -> bytes:
        """The same as JSON, made once: that takes long, and many may ask at the same time, and then not read it."""
        with self._one_at_a_time:
            self._text = self._text or render(self.openapi())
        return self._text


def create_app(
    settings: Settings,
    make_measurer: Callable[[Settings], Measurer] = services.torch_measurer,
    membership: Membership = ALONE,
) -> FastAPI:
    """The application for these settings. Its parts open and close with the ASGI lifespan.

    `membership` says what it shares with the other workers, where it is one of several.
    """
    registry = CollectorRegistry()
    metrics = ProcessMetrics(registry)
    keys, doors = Keys(settings.auth), Doors(ROUTES, settings.open_metrics)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        opening = services.opened(settings, metrics, registry, make_measurer, keys, rehearsal.of_pages, membership)
        async with opening as opened:
            app.state.services = opened
            yield

    # What stands around every answer, the outermost first.
    around = [
        Middleware(RequestMiddleware, metrics=metrics),
        Middleware(TrustedHosts, settings=settings),
        Middleware(Guard, keys=keys, doors=doors, public_url=settings.public_url),
    ]
    app = Application(
        title="offpolicy-monitor",
        version=__version__,
        description=openapi.DESCRIPTION,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        middleware=around,
    )
    app.router.routes.extend(ROUTES)
    handlers.install(app, ROUTES)
    app.direct = [(part.is_direct, inside(around, part.answer_directly)) for part in (batches, health)]
    return app


def inside(around: Sequence[Middleware], answer: ASGIApp) -> ASGIApp:
    """The answer with these around it, the outermost first."""
    for middleware, arguments, named in reversed(around):
        answer = middleware(answer, *arguments, **named)
    return answer
