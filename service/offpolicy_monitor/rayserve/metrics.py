"""Metrics: /metrics of a whole deployment as an application: the gauges of runs, which it reads from the database, and
what each replica has counted, with a label that says which, in the format that the scraper asks for.

It measures and stores nothing, and needs neither torch nor Ray. Tokens and trusted hosts hold as in the replicas.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Final

import structlog
from fastapi import FastAPI, Response
from prometheus_client import CollectorRegistry
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.types import Receive, Scope, Send

from offpolicy_monitor.errors import Unavailable
from offpolicy_monitor.exposition.counters import RunCounters
from offpolicy_monitor.exposition.formats import DELIMITED, Format, asked_for
from offpolicy_monitor.exposition.process import ProcessMetrics
from offpolicy_monitor.exposition.runs import RunExposition
from offpolicy_monitor.families import RUN_GAUGES, RUN_INFO
from offpolicy_monitor.rayserve.gathered import Gathered, Lines, Messages
from offpolicy_monitor.server.access.doors import Doors
from offpolicy_monitor.server.access.guard import Guard
from offpolicy_monitor.server.access.keys import REFRESH_SECONDS, Keys
from offpolicy_monitor.server.app import ROUTES, Application, inside
from offpolicy_monitor.server.exported import Exported
from offpolicy_monitor.server.http import handlers
from offpolicy_monitor.server.http.hosts import TrustedHosts
from offpolicy_monitor.server.http.middleware import RequestMiddleware
from offpolicy_monitor.server.http.shared import Shared
from offpolicy_monitor.server.routes import scrape
from offpolicy_monitor.server.scrapes import detail_of
from offpolicy_monitor.settings import Settings
from offpolicy_monitor.store import Store

log = structlog.get_logger("offpolicy_monitor.server")
#: Families that say how runs are: the same whoever reads the database.
OF_RUNS: Final = frozenset(family.full_name for family in (*RUN_GAUGES, RUN_INFO))
SELF: Final = "exporter"
#: What an answer is counted as, and logged.
ROUTE: Final = scrape.router.routes[0]
#: Of a replica its name and exposition, or why there is none.
Part = tuple[str, bytes] | Exception
#: Asks all replicas for a format, by its content type.
Ask = Callable[[str], Iterable[Part]]


def always() -> bool:
    """It is the one that shows runs, whoever leads."""
    return True


def application(settings: Settings, ask: Ask) -> FastAPI:
    """Answers /metrics. What `ask` raises leaves a scrape with the runs alone."""
    registry = CollectorRegistry()
    metrics, keys = ProcessMetrics(registry), Keys(settings.auth)
    store = Store.open(settings.database_url)
    exported = Exported(store, settings, always)
    runs = RunExposition(exported, RunCounters(settings.max_exported_runs), detail_of(settings))

    def make(format: Format) -> Response:
        gathered: Gathered = Messages() if format is DELIMITED else Lines()
        gathered.add(b"".join([*runs.render(format), format.end]), None, OF_RUNS.__contains__)
        answered, missed = asked(ask, format)
        metrics.missed(missed)
        for replica, content in (*answered, (SELF, format.process(registry))):
            gathered.add(content, replica, lambda name: name not in OF_RUNS)
        return Response(gathered.whole(), headers={"Content-Type": format.content_type})

    shared = Shared(make)

    async def learn() -> None:
        with contextlib.suppress(Unavailable):
            keys.learn(await asyncio.to_thread(store.access_tokens))

    async def learn_on() -> None:
        while True:
            await asyncio.sleep(REFRESH_SECONDS)
            await learn()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await learn()
        learning = asyncio.create_task(learn_on())
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
        scope["route"] = ROUTE
        response = await shared.get(asked_for(Headers(scope=scope).get("accept", "")))
        await response(scope, receive, send)

    # Where Ray has put an application below a path, its router sees that no more.
    app = Application(lifespan=lifespan, openapi_url=None, redirect_slashes=False, middleware=around)
    app.direct = [(is_scrape, inside(around, answer))]
    handlers.install(app, ())
    return app


def is_scrape(scope: Scope) -> bool:
    """Whether somebody asks for /metrics."""
    return scope["type"] == "http" and scope["method"] in ("GET", "HEAD") and scope["path"] == "/metrics"


def asked(ask: Ask, format: Format) -> tuple[list[tuple[str, bytes]], int]:
    """What the replicas tell, and how many of them do not; where none can be asked at all it is one at least."""
    try:
        parts = list(ask(format.content_type))
    except Exception as error:  # a boundary: whatever keeps them all from being asked
        parts = [error]
    answered = [part for part in parts if not isinstance(part, Exception)]
    missed = [f"{type(part).__name__} {part}".partition("\n")[0] for part in parts if isinstance(part, Exception)]
    for reason in missed:
        log.warning("a scrape is without a replica", reason=reason)
    return answered, len(missed)
