"""Exporter: /metrics of the whole deployment, by one process: the gauges of runs, which it reads from the database, and
what each replica has counted, with a label that says which.

It measures and stores nothing, and needs no torch. Tokens and trusted hosts hold here as in the replicas.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final

import structlog
from fastapi import FastAPI, Response
from prometheus_client import CollectorRegistry
from ray import serve
from ray.serve.handle import DeploymentHandle
from starlette.middleware import Middleware
from starlette.types import Receive, Scope, Send

from offpolicy_monitor import logs
from offpolicy_monitor.errors import Unavailable
from offpolicy_monitor.exposition.counters import RunCounters
from offpolicy_monitor.exposition.formats import TEXT
from offpolicy_monitor.exposition.process import ProcessMetrics
from offpolicy_monitor.exposition.runs import RunExposition
from offpolicy_monitor.families import RUN_GAUGES, RUN_INFO
from offpolicy_monitor.rayserve.gathered import Gathered
from offpolicy_monitor.server.access.doors import Doors
from offpolicy_monitor.server.access.guard import Guard
from offpolicy_monitor.server.access.keys import REFRESH_SECONDS, Keys
from offpolicy_monitor.server.app import ROUTES, Application, inside
from offpolicy_monitor.server.exported import Exported
from offpolicy_monitor.server.http import handlers
from offpolicy_monitor.server.http.hosts import TrustedHosts
from offpolicy_monitor.server.http.middleware import RequestMiddleware
from offpolicy_monitor.server.http.shared import Shared
from offpolicy_monitor.server.scrapes import detail_of
from offpolicy_monitor.settings import Settings
from offpolicy_monitor.store import Store

log = structlog.get_logger("offpolicy_monitor.server")
#: Families that say how runs are: the same whoever reads the database.
OF_RUNS: Final = frozenset(family.full_name for family in (*RUN_GAUGES, RUN_INFO))
#: The longest wait for replicas, seconds; those that do not answer in time are left out.
WITHIN: Final = 3.0
SELF: Final = "exporter"
Parts = Sequence[tuple[str, bytes]]


def always() -> bool:
    """It is the one that shows runs, whoever leads."""
    return True


@serve.ingress()
class Exporter:
    """Of the replicas of a deployment, of another application."""

    def __init__(self, host: str, deployment: str, application: str) -> None:
        self._settings, self._deployment, self._application = Settings(host=host), deployment, application
        self._replicas: DeploymentHandle | None = None

    def __serve_build_asgi_app__(self) -> FastAPI:
        logs.configure(self._settings.log_level, self._settings.log_format)
        return application(self._settings, self._ask)

    def _ask(self) -> Parts:
        if self._replicas is None:
            self._replicas = serve.get_deployment_handle(self._deployment, self._application)
        results: Parts = self._replicas.broadcast("exposition").results(timeout_s=WITHIN)
        return results


def application(settings: Settings, ask: Callable[[], Parts]) -> FastAPI:
    """Answers /metrics; `ask` tells of each replica its name and exposition."""
    registry = CollectorRegistry()
    metrics, keys = ProcessMetrics(registry), Keys(settings.auth)
    store = Store.open(settings.database_url)
    exported = Exported(store, settings, always)
    runs = RunExposition(exported, RunCounters(settings.max_exported_runs), detail_of(settings))

    def make(_: None) -> bytes:
        gathered = Gathered()
        gathered.add(b"".join(runs.render(TEXT)), None, OF_RUNS.__contains__)
        for replica, text in (*asked(ask), (SELF, TEXT.process(registry))):
            gathered.add(text, replica, lambda name: name not in OF_RUNS)
        return gathered.text()

    shared = Shared(make)

    async def learn() -> None:
        while True:
            with contextlib.suppress(Unavailable):
                keys.learn(await asyncio.to_thread(store.access_tokens))
            await asyncio.sleep(REFRESH_SECONDS)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        learning = asyncio.create_task(learn())
        try:
            yield
        finally:
            learning.cancel()
            exported.close()
            await asyncio.to_thread(store.close)

    around = [
        Middleware(RequestMiddleware, metrics=metrics),
        Middleware(TrustedHosts, settings=settings),
        Middleware(Guard, keys=keys, doors=Doors(ROUTES, settings.open_metrics), public_url=settings.public_url),
    ]

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        response = Response(await shared.get(None), headers={"Content-Type": TEXT.content_type})
        await response(scope, receive, send)

    # Where Ray has put an application below a path, its router sees that no more.
    app = Application(lifespan=lifespan, openapi_url=None, redirect_slashes=False, middleware=around)
    app.direct = [(is_scrape, inside(around, answer))]
    handlers.install(app, ())
    return app


def is_scrape(scope: Scope) -> bool:
    """Whether somebody asks for /metrics."""
    return scope["type"] == "http" and scope["method"] in ("GET", "HEAD") and scope["path"] == "/metrics"


def asked(ask: Callable[[], Parts]) -> Parts:
    """What the replicas tell; nothing where they cannot be asked, so that the runs are shown all the same."""
    try:
        return ask()
    except Exception as error:  # a boundary: whatever keeps a replica from answering
        log.warning("scrape without replicas", reason=str(error).partition("\n")[0])
        return ()
