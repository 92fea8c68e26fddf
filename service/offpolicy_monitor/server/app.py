"""create_app: the whole service as one ASGI application. All wiring is here; nothing starts at import."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from fastapi import Depends, FastAPI
from prometheus_client import CollectorRegistry

from offpolicy_monitor._version import __version__
from offpolicy_monitor.exposition.process import ProcessMetrics
from offpolicy_monitor.pipeline.values import Measurer
from offpolicy_monitor.server import openapi, services
from offpolicy_monitor.server.http import handlers
from offpolicy_monitor.server.http.hosts import TrustedHosts
from offpolicy_monitor.server.http.middleware import RequestMiddleware
from offpolicy_monitor.server.http.queries import refuse_unknown_parameters
from offpolicy_monitor.server.routes import (
    alerts,
    batches,
    diagnosis,
    evaluate,
    health,
    pages,
    recommendations,
    runbook,
    runs,
    scrape,
    whatif,
    worst,
)
from offpolicy_monitor.settings import Settings

PARTS = (batches, evaluate, runs, whatif, recommendations, worst, diagnosis, alerts, health, scrape, runbook, pages)
ROUTERS = tuple(part.router for part in PARTS)


class Application(FastAPI):
    """FastAPI whose document also holds the shapes of problems."""

    def openapi(self) -> dict[str, Any]:
        """The OpenAPI document, made once."""
        document = super().openapi()
        document["components"]["schemas"].update(openapi.problem_schemas())
        return document


def create_app(settings: Settings, make_measurer: Callable[[Settings], Measurer] = services.torch_measurer) -> FastAPI:
    """The application for these settings. Its parts open and close with the ASGI lifespan."""
    registry = CollectorRegistry()
    metrics = ProcessMetrics(registry)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with services.opened(settings, metrics, registry, make_measurer) as opened:
            app.state.services = opened
            yield

    app = Application(
        title="offpolicy-monitor",
        version=__version__,
        description=openapi.DESCRIPTION,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        dependencies=[Depends(refuse_unknown_parameters)],
        redirect_slashes=False,
    )
    for router in ROUTERS:
        app.include_router(router)
    handlers.install(app, [route for router in ROUTERS for route in router.routes])
    app.add_middleware(TrustedHosts, settings=settings)
    app.add_middleware(RequestMiddleware, metrics=metrics)
    return app
