"""RunCollector: the run families of a scrape.

Gauges are a function of the store's exported rows alone, so that a restart shows the same; counters and histograms are
those of this process, for the same runs. What a row gives is kept until the row changes, so that a scrape stays cheap.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from offpolicy_monitor.exposition.counters import RunCounters, RunCounts
from offpolicy_monitor.exposition.rows import all_samples
from offpolicy_monitor.families import PREFIX, REASONS, RUN_COUNTERS, RUN_GAUGES, RUN_HISTOGRAMS, RUN_INFO, Family


class ExportedRun(Protocol):
    """What the collector needs of a run's row; `figures` are those of its last step that counts."""

    @property
    def run(self) -> str: ...
    @property
    def profile(self) -> str: ...
    @property
    def last_batch(self) -> float: ...
    @property
    def policy_version(self) -> int | None: ...
    @property
    def step(self) -> int | None: ...
    @property
    def minibatch(self) -> int | None: ...
    @property
    def attempt(self) -> int | None: ...
    @property
    def coverage(self) -> float | None: ...
    @property
    def figures(self) -> Mapping[str, Any]: ...


@dataclass(frozen=True)
class _Shown:
    """What one row gives: gauge samples by family, and the gaps it has."""

    version: tuple[Any, ...]
    gauges: Mapping[str, list[Sample]]
    gaps: tuple[str, ...]


class RunCollector(Collector):
    """`exported()` gives the rows to show, at most as many as the setting allows, none of an expired run."""

    def __init__(self, exported: Callable[[], Sequence[ExportedRun]], counters: RunCounters) -> None:
        self._exported = exported
        self._counters = counters
        self._kept: dict[str, _Shown] = {}
        self._kept_buckets: dict[tuple[str, str, str], tuple[Sequence[int], list[Sample]]] = {}

    def describe(self) -> Iterable[Metric]:
        """Nothing: registering must not read the database."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """One Metric a family, each with the samples of all runs."""
        rows = self._exported()
        # A new dict each time: two scrapes at once must not change one under the other, and runs that left are dropped.
        shown = self._kept = {row.run: _shown(row, self._kept.get(row.run)) for row in rows}
        for family in RUN_GAUGES:
            metric = Metric(family.full_name, family.help, family.type)
            for of_run in shown.values():
                metric.samples.extend(of_run.gauges[family.name])
            yield metric
        yield _info(rows)
        counts = {run: self._counters.snapshot(run) for run in shown}
        yield from _counter_metrics(counts)
        yield from self._histogram_metrics(shown, counts)

    def _histogram_metrics(self, shown: Mapping[str, _Shown], counts: Mapping[str, RunCounts]) -> Iterable[Metric]:
        """Finished histograms of each gap that a run has; 0 where this process has stored nothing of it yet."""
        kept, self._kept_buckets = self._kept_buckets, {}
        for family in RUN_HISTOGRAMS:
            metric = Metric(family.full_name, family.help, family.type)
            for run, gap in ((run, gap) for run, of_run in shown.items() for gap in of_run.gaps):
                cumulative, place = counts[run].cumulative(family, gap), (family.name, run, gap)
                if place not in kept or kept[place][0] is not cumulative:
                    kept[place] = (cumulative, _histogram_samples(family, run, gap, cumulative))
                self._kept_buckets[place] = kept[place]
                metric.samples.extend(kept[place][1])
            yield metric


def _shown(row: ExportedRun, kept: _Shown | None) -> _Shown:
    """What was kept if the row has not changed since; a row changes with each batch, and when its step is closed."""
    version = (row.attempt, row.step, row.minibatch, row.last_batch, row.coverage, row.policy_version)
    if kept is not None and kept.version == version:
        return kept
    return _Shown(version, _samples(row), tuple(row.figures.get("gaps", ())))


def _samples(row: ExportedRun) -> dict[str, list[Sample]]:
    names = ("step", "policy_version", "last_batch", "coverage")
    found = all_samples(row.run, {**row.figures, **{name: getattr(row, name) for name in names}})
    return {
        name: [Sample(PREFIX + name, dict(labels), value, None, None) for labels, value in values.items()]
        for name, values in found.items()
    }


def _info(rows: Sequence[ExportedRun]) -> Metric:
    metric = GaugeMetricFamily(RUN_INFO.full_name, RUN_INFO.help, labels=RUN_INFO.labels)
    for row in rows:
        metric.add_metric([row.run, row.profile], 1.0)
    return metric


def _counter_metrics(counts: Mapping[str, RunCounts]) -> Iterable[Metric]:
    for family in RUN_COUNTERS:
        metric = CounterMetricFamily(family.full_name, family.help, labels=family.labels)
        for run, of_run in counts.items():
            for reason in REASONS.get(family.name, ("",)):
                metric.add_metric([run, reason] if reason else [run], of_run.totals[family.name, reason])
        yield metric


def _histogram_samples(family: Family, run: str, gap: str, cumulative: Sequence[int]) -> list[Sample]:
    """The buckets of one histogram. No sum: signed values have none that a rate could be taken of."""
    edges = (*(repr(bound) for bound in family.bounds), "+Inf")
    return [
        Sample(family.full_name + "_bucket", {"run": run, "gap": gap, "le": edge}, float(count), None, None)
        for edge, count in zip(edges, cumulative, strict=True)
    ]
