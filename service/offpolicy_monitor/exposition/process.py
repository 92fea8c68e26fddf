"""ProcessMetrics: counters, histograms and gauges of the service itself, built from `families.PROCESS`.

Fed by the pipeline and the request middleware; belongs to one registry, made with the application.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics

from offpolicy_monitor._version import __version__
from offpolicy_monitor.families import PROCESS, Family


def _counter(family: Family, registry: CollectorRegistry) -> Any:
    return Counter(family.full_name, family.help, family.labels, registry=registry)


def _gauge(family: Family, registry: CollectorRegistry) -> Any:
    return Gauge(family.full_name, family.help, family.labels, registry=registry)


def _histogram(family: Family, registry: CollectorRegistry) -> Any:
    return Histogram(family.full_name, family.help, family.labels, registry=registry, buckets=family.bounds)


_MAKERS = {"counter": _counter, "gauge": _gauge, "histogram": _histogram}


class ProcessMetrics:
    """One method an event; names and labels are those of the families."""

    def __init__(self, registry: CollectorRegistry) -> None:
        # Otherwise each counter brings a second family, `_created`, which no dashboard needs and promtool dislikes.
        disable_created_metrics()
        self._metrics: dict[str, Any] = {family.name: _MAKERS[family.type](family, registry) for family in PROCESS}
        self._children: dict[tuple[str, ...], Any] = {}
        for stage in ("decode", "measure", "store"):
            self._metrics["stage_seconds"].labels(stage)
        for encoding in ("identity", "gzip", "zstd"):
            self._metrics["ingest_bytes_total"].labels(encoding)
        for target in ("webhook", "alertmanager"):
            for outcome in ("sent", "failed", "refused"):
                self._metrics["notifications_total"].labels(target, outcome)

    def _labelled(self, family: str, *labels: str) -> Any:
        """The metric of a family with these labels, which prometheus-client takes longer to find than to count in."""
        found = self._children.get((family, *labels))
        if found is None:
            found = self._children[family, *labels] = self._metrics[family].labels(*labels)
        return found

    def request(self, route: str, status: int, seconds: float) -> None:
        """A request was answered; `route` is the template, never the path as sent."""
        self._labelled("request_seconds", route, str(status)).observe(seconds)

    def rejected(self, reason: str) -> None:
        """A request was answered with a problem document of this kind."""
        self._metrics["rejected_requests_total"].labels(reason).inc()

    def stage(self, stage: str, seconds: float) -> None:
        """A batch passed a stage of the pipeline."""
        self._labelled("stage_seconds", stage).observe(seconds)

    @contextmanager
    def timed(self, stage: str, spent: float = 0.0) -> Iterator[None]:
        """The block is work of a stage, after `spent` seconds of it; no wait is in it."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.stage(stage, spent + time.perf_counter() - began)

    def transaction(self, seconds: float) -> None:
        """The writer's transaction was committed or failed."""
        self._metrics["store_seconds"].observe(seconds)

    def received(self, encoding: str, size: int) -> None:
        """A request body arrived in full: `size` bytes as received."""
        self._labelled("ingest_bytes_total", encoding).inc(size)

    def fell_back(self, times: int, device: str) -> None:
        """Measurements were done again because the device failed; `device` is the one in use now."""
        self._metrics["device_fallbacks_total"].inc(times)
        self._metrics["device_info"].clear()
        self._metrics["device_info"].labels(device).set(1)

    def step_failed(self) -> None:
        """A step could not be merged or kept."""
        self._metrics["step_failures_total"].inc()

    def missed(self, replicas: int) -> None:
        """So many replicas did not answer a scrape."""
        self._metrics["missed_replicas_total"].inc(replicas)

    def notified(self, target: str, outcome: str) -> None:
        """A post told of alerts: it was sent, failed and will be tried again, or was refused."""
        self._metrics["notifications_total"].labels(target, outcome).inc()

    def watch_inflight(self, used: Callable[[], float]) -> None:
        """Read the bytes in use at each scrape."""
        self._metrics["inflight_bytes"].set_function(used)

    def watch_stages(self, oldest_jobs: Callable[[], Mapping[str, float]]) -> None:
        """Ask at each scrape how old the oldest job of each stage is."""
        for stage in oldest_jobs():
            self._metrics["oldest_job_seconds"].labels(stage).set_function(lambda stage=stage: oldest_jobs()[stage])

    def watch_room(self, free: Callable[[], float] | None) -> None:
        """Ask at each scrape how much room the database's disk has; nothing of a database elsewhere."""
        if free is not None:
            self._metrics["database_free_bytes"].labels("sqlite").set_function(free)

    def watch_certificate(self, name: str, ends_at: Callable[[], float]) -> None:
        """Ask at each scrape when the certificate ends that new connections are shown."""
        self._metrics["certificate_expiry_timestamp_seconds"].labels(name).set_function(ends_at)

    def watch_compilation(self, has_failed: Callable[[], bool]) -> None:
        """Ask at each scrape whether the compiled form was to be had and is not."""
        self._metrics["compilation_failed"].set_function(has_failed)

    def watch_leading(self, leads: Callable[[], bool]) -> None:
        """Ask at each scrape whether this process leads."""
        self._metrics["leader"].set_function(leads)

    def describe(self, torch_version: str, device: str) -> None:
        """Say once what computes here, and since when."""
        self._metrics["start_time_seconds"].set(time.time())
        self._metrics["device_info"].labels(device).set(1)
        self._metrics["build_info"].labels(__version__, torch_version, device).set(1)
