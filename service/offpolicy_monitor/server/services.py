"""Services: the long-lived parts behind the routes, opened and closed together.

The one place that knows how store, device, pipeline and registry are wired. Tests pass their own parts in.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib.metadata import version

import structlog
from fastapi import Request
from prometheus_client import CollectorRegistry

from offpolicy_monitor.errors import Unavailable
from offpolicy_monitor.exposition.collector import ExportedRun, RunCollector
from offpolicy_monitor.exposition.counters import RunCounters
from offpolicy_monitor.exposition.process import ProcessMetrics
from offpolicy_monitor.pipeline.stages import Pipeline
from offpolicy_monitor.pipeline.values import Measurer
from offpolicy_monitor.pipeline.writer import Writer
from offpolicy_monitor.settings import Settings
from offpolicy_monitor.store import Store

log = structlog.get_logger("offpolicy_monitor.server")
SWEEPS_PER_TIMEOUT = 10


@dataclass
class Services:
    """What a request can reach."""

    settings: Settings
    store: Store
    pipeline: Pipeline
    registry: CollectorRegistry
    metrics: ProcessMetrics
    device_is_warm: bool = False
    started_at: float = field(default_factory=time.time)


def of(request: Request) -> Services:
    """The services of the application that serves this request."""
    services: Services = request.app.state.services
    return services


@asynccontextmanager
async def opened(
    settings: Settings,
    metrics: ProcessMetrics,
    registry: CollectorRegistry,
    make_measurer: Callable[[Settings], Measurer],
) -> AsyncIterator[Services]:
    """Everything that runs while the application runs; what was begun is finished before it closes."""
    store = await asyncio.to_thread(Store.open, settings.database_url)
    try:
        measurer = await asyncio.to_thread(make_measurer, settings)
        metrics.describe(version("torch"), measurer.device_name)
        counters = RunCounters(settings.max_exported_runs)
        pipeline = Pipeline(settings, Writer(store, metrics.transaction), measurer, metrics, counters)
        metrics.watch_inflight(lambda: pipeline.budget.used)
        collector = RunCollector(exported_by(store, settings), counters)
        registry.register(collector)
        services = Services(settings, store, pipeline, registry, metrics)
        background = [asyncio.create_task(_warm_up(services)), asyncio.create_task(_sweep(services))]
        try:
            yield services
        finally:
            registry.unregister(collector)
            for task in background:
                task.cancel()
            await asyncio.gather(*background, return_exceptions=True)
            await asyncio.to_thread(pipeline.close)
    finally:
        await asyncio.to_thread(store.close)


def exported_by(store: Store, settings: Settings) -> Callable[[], Sequence[ExportedRun]]:
    """The rows of a scrape. A store that is away shows no runs: the process's own metrics must still be seen."""

    def exported() -> Sequence[ExportedRun]:
        try:
            return store.exported(settings.max_exported_runs, time.time() - settings.run_expiry)
        except Unavailable as error:
            log.warning("scrape without runs", reason=error.detail)
            return ()

    return exported


def torch_measurer(settings: Settings) -> Measurer:
    """Made here, not imported above: torch takes seconds to import, and only a running service needs it."""
    from offpolicy_monitor.measure import Measurer as TorchMeasurer

    return TorchMeasurer(settings.device, settings.torch_threads)


async def _warm_up(services: Services) -> None:
    """Measure a small batch; then the service is ready. One that cannot measure says so and never is."""
    try:
        await services.pipeline.warm_up()
    except Exception as error:
        log.error("the device cannot measure", exc_info=error)
        return
    services.device_is_warm = True


async def _sweep(services: Services) -> None:
    """Close steps whose missing shards are overdue, so that gauges and answers count what is there."""
    timeout = services.settings.step_timeout
    while True:
        await asyncio.sleep(timeout / SWEEPS_PER_TIMEOUT)
        try:
            closed = await services.pipeline.writer.call(lambda: services.store.sweep(time.time(), timeout))
        except Unavailable as error:
            log.warning("sweep put off", reason=error.detail)
            continue
        if closed:
            log.info("steps closed without all their shards", steps=closed)
