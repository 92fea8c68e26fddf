"""RunExposition: the run families of a scrape, as text.

Gauges are a function of the store's exported rows alone, so that a restart shows the same; counters and histograms are
those of this process, for the same runs. The lines that a row gives are kept until it changes: a scrape stays cheap.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from prometheus_client.core import CounterMetricFamily, Metric

from offpolicy_monitor.exposition.counters import RunCounters, RunCounts
from offpolicy_monitor.exposition.lines import Encode, head, line
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
    @property
    def states(self) -> Sequence[Mapping[str, Any]]: ...
    @property
    def stored_states(self) -> bytes | None: ...
    @property
    def step_seconds(self) -> float | None: ...
    @property
    def open_since(self) -> float | None: ...
    @property
    def finished(self) -> bool: ...


@dataclass(frozen=True)
class _Shown:
    """What one row gives: the lines of each gauge, and the gaps it has."""

    version: tuple[Any, ...]
    gauges: Mapping[str, str]
    gaps: tuple[str, ...]


class RunExposition:
    """`exported()` gives the rows to show, at most as many as the setting allows, none of an expired run."""

    def __init__(self, exported: Callable[[], Sequence[ExportedRun]], counters: RunCounters) -> None:
        self._exported = exported
        self._counters = counters
        self._kept: dict[str, _Shown] = {}
        self._kept_buckets: dict[tuple[str, str, str], tuple[Sequence[int], str]] = {}

    def render(self, encode: Encode) -> bytes:
        """Every family, each with the samples of all runs; `encode` is that of the format asked for."""
        rows = self._exported()
        # A new dict each time: two scrapes at once must not change one under the other, and runs that left are dropped.
        shown = self._kept = {row.run: _shown(row, self._kept.get(row.run)) for row in rows}
        counts = {run: self._counters.snapshot(run) for run in shown}
        parts: list[bytes] = []
        for metric, lines in self._families(rows, shown, counts):
            parts += [head(metric, encode), "".join(lines).encode()]
        return b"".join(parts)

    def _families(
        self, rows: Sequence[ExportedRun], shown: Mapping[str, _Shown], counts: Mapping[str, RunCounts]
    ) -> Iterator[tuple[Metric, list[str]]]:
        for family in RUN_GAUGES:
            yield _metric(family), [of_run.gauges[family.name] for of_run in shown.values()]
        yield (
            _metric(RUN_INFO),
            [line(RUN_INFO.full_name, {"run": row.run, "profile": row.profile}, 1.0) for row in rows],
        )
        for family in RUN_COUNTERS:
            yield CounterMetricFamily(family.full_name, family.help), list(_counter_lines(family, counts))
        # A new dict here too.
        kept, self._kept_buckets = self._kept_buckets, {}
        for family in RUN_HISTOGRAMS:
            yield _metric(family), list(self._histogram_lines(family, shown, counts, kept))

    def _histogram_lines(
        self,
        family: Family,
        shown: Mapping[str, _Shown],
        counts: Mapping[str, RunCounts],
        kept: Mapping[tuple[str, str, str], tuple[Sequence[int], str]],
    ) -> Iterator[str]:
        """Finished histograms of each gap that a run has; 0 where this process has stored nothing of it yet."""
        for run, gap in ((run, gap) for run, of_run in shown.items() for gap in of_run.gaps):
            cumulative, place = counts[run].cumulative(family, gap), (family.name, run, gap)
            known = kept.get(place)
            if known is None or known[0] is not cumulative:
                known = (cumulative, _bucket_lines(family, run, gap, cumulative))
            self._kept_buckets[place] = known
            yield known[1]


def _metric(family: Family) -> Metric:
    return Metric(family.full_name, family.help, family.type)


def _shown(row: ExportedRun, kept: _Shown | None) -> _Shown:
    """What was kept if the row has not changed since; a row changes with each batch, and when its step is closed.

    It changes as well when the run's settings do, and with them what the rules say.
    """
    version = (
        *(row.attempt, row.step, row.minibatch, row.last_batch, row.coverage, row.policy_version),
        *(row.stored_states, row.open_since, row.finished),
    )
    if kept is not None and kept.version == version:
        return kept
    return _Shown(version, _gauge_lines(row), tuple(row.figures.get("gaps", ())))


def _gauge_lines(row: ExportedRun) -> dict[str, str]:
    names = ("step", "policy_version", "last_batch", "coverage", "step_seconds", "open_since")
    values = {name: getattr(row, name) for name in names}
    found = all_samples(
        row.run, {**row.figures, **values, "finished": int(row.finished), "alerts": _alerts(row.states)}
    )
    return {
        name: "".join([line(PREFIX + name, dict(labels), value) for labels, value in values.items()])
        for name, values in found.items()
    }


def _alerts(states: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, dict[str, Any]]]:
    """alert -> severity -> figures; a rule that is silent or not wanted has none."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for state in states:
        if "breach_steps" in state:
            figures = {**state, "active": int(state["state"] == "active")}
            found.setdefault(state["alert"], {})[state["severity"]] = figures
    return found


def _counter_lines(family: Family, counts: Mapping[str, RunCounts]) -> Iterator[str]:
    for run, of_run in counts.items():
        for reason in REASONS.get(family.name, ("",)):
            labels = {"run": run, "reason": reason} if reason else {"run": run}
            yield line(family.full_name, labels, of_run.totals[family.name, reason])


def _bucket_lines(family: Family, run: str, gap: str, cumulative: Sequence[int]) -> str:
    """The buckets of one histogram. No sum: signed values have none that a rate could be taken of."""
    edges = (*(repr(bound) for bound in family.bounds), "+Inf")
    name = family.full_name + "_bucket"
    return "".join(
        [line(name, {"run": run, "gap": gap, "le": edge}, count) for edge, count in zip(edges, cumulative, strict=True)]
    )
