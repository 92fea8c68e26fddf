"""RunExposition: the run families of a scrape, in the format asked for.

Gauges are a function of the store's exported rows alone, so that a restart shows the same; counters and histograms are
those of this process, for the same runs. What a row gives is kept until it changes: a scrape stays cheap.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from offpolicy_monitor.exposition import alerts
from offpolicy_monitor.exposition.counters import RunCounts
from offpolicy_monitor.exposition.formats import Format
from offpolicy_monitor.exposition.histograms import Counted
from offpolicy_monitor.exposition.rows import all_samples
from offpolicy_monitor.families import REASONS, RUN_COUNTERS, RUN_GAUGES, RUN_HISTOGRAMS, RUN_INFO, Family

#: Fields of a row that are figures by themselves.
_PLAIN: Final = ("step", "policy_version", "last_batch", "coverage", "step_seconds", "open_since")
#: What decides whether a row's gauges are those of the last scrape. The stored bytes stand for what is in them.
_VERSION: Final = (*_PLAIN, "attempt", "minibatch", "finished", "overrides", "stored_figures", "stored_states")


class Counters(Protocol):
    """What the process has counted of runs, or several processes have."""

    def runs(self) -> list[str]: ...
    def snapshot(self, run: str) -> RunCounts: ...


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
    def stored_figures(self) -> object: ...
    @property
    def overrides(self) -> Mapping[str, Any] | None: ...
    @property
    def step_seconds(self) -> float | None: ...
    @property
    def open_since(self) -> float | None: ...
    @property
    def finished(self) -> bool: ...


@dataclass(frozen=True)
class Detail:
    """How much is shown of a run: every bound of its histograms, and every gauge of alerts that are quiet."""

    all_buckets: bool = False
    all_alerts: bool = False


MODERATE: Final = Detail()


@dataclass(frozen=True)
class _Shown:
    """What one row gives: the gaps it has, and the block of each gauge in each format that was asked for."""

    version: tuple[Any, ...]
    gaps: tuple[str, ...]
    blocks: Mapping[Format, Mapping[str, bytes]]


#: (family, run, gap) -> what was counted, and the block that it gave.
_Buckets = dict[tuple[str, str, str], tuple[Counted, bytes]]


class RunExposition:
    """`exported()` gives the rows to show, at most as many as the setting allows, none of an expired run.

    It gives None where another process shows them: then there is only what this one has counted.
    One render at a time: what is kept between them has no lock.
    """

    def __init__(
        self, exported: Callable[[], Sequence[ExportedRun] | None], counters: Counters, detail: Detail = MODERATE
    ) -> None:
        self._exported = exported
        self._counters = counters
        self._detail = detail
        self._kept: dict[str, _Shown] = {}
        self._kept_buckets: dict[Format, _Buckets] = {}

    def render(self, format: Format) -> list[bytes]:
        """Every family, each with the samples of all runs, in pieces that nobody changes."""
        exported = self._exported()
        rows = exported or ()
        # New dicts each time, so that runs that left are dropped.
        shown = self._kept = {row.run: self._shown(row, self._kept.get(row.run), format) for row in rows}
        counts = {run: self._counters.snapshot(run) for run in (self._counters.runs() if exported is None else shown)}
        gaps = {run: shown[run].gaps if run in shown else of_run.gaps for run, of_run in counts.items()}
        blocks = [of_run.blocks[format] for of_run in shown.values()]
        pieces: list[bytes] = []
        for family in RUN_GAUGES:
            pieces += format.family(family, [of_run[family.name] for of_run in blocks])
        pieces += format.family(RUN_INFO, [format.samples(RUN_INFO, row.run, {(row.profile,): 1.0}) for row in rows])
        for family in RUN_COUNTERS:
            pieces += format.family(family, [_totals(format, family, *of_run) for of_run in counts.items()])
        kept, self._kept_buckets[format] = self._kept_buckets.get(format, {}), {}
        for family in RUN_HISTOGRAMS:
            pieces += format.family(family, self._buckets(format, family, gaps, counts, kept))
        return pieces

    def _buckets(
        self,
        format: Format,
        family: Family,
        gaps: Mapping[str, Sequence[str]],
        counts: Mapping[str, RunCounts],
        kept: _Buckets,
    ) -> Iterator[bytes]:
        """Finished histograms of each gap that a run has; 0 where this process has stored nothing of it yet."""
        bounds = family.all_bounds if self._detail.all_buckets else family.bounds
        for run, gap in ((run, gap) for run, of_run in gaps.items() for gap in of_run):
            counted, key = counts[run].counted(family, gap), (family.name, run, gap)
            known = kept.get(key)
            if known is None or known[0] is not counted:
                known = (counted, format.histogram(family, run, gap, bounds, counted))
            self._kept_buckets[format][key] = known
            yield known[1]

    def _shown(self, row: ExportedRun, kept: _Shown | None, format: Format) -> _Shown:
        """What was kept, if the row has not changed since and was written in this format then."""
        version = tuple([getattr(row, name) for name in _VERSION])
        before = kept.blocks if kept is not None and kept.version == version else {}
        if kept is not None and format in before:
            return kept
        figures = row.figures
        gauges = all_samples(
            {
                **figures,
                **{name: getattr(row, name) for name in _PLAIN},
                "finished": int(row.finished),
                "alerts": alerts.shown(row.states, row.overrides or (), self._detail.all_alerts),
            }
        )
        blocks = {family.name: format.samples(family, row.run, gauges[family.name]) for family in RUN_GAUGES}
        return _Shown(version, tuple(figures.get("gaps", ())), {**before, format: blocks})


def _totals(format: Format, family: Family, run: str, counts: RunCounts) -> bytes:
    reasons = REASONS.get(family.name)
    if reasons is None:
        return format.samples(family, run, {(): counts.totals[family.name, ""]})
    return format.samples(family, run, {(reason,): counts.totals[family.name, reason] for reason in reasons})
