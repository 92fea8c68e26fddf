"""RunCounters: what this process stored of each run since it started.

They start at 0 with the process, as Prometheus counters may; the history is in the store. Written by the event loop,
read by a scrape in another thread. At most `limit` runs are kept, the most recently active.
"""

import threading
from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from functools import cache

from offpolicy_monitor.exposition.histograms import Counted, Exposed, Histograms
from offpolicy_monitor.families import BY_NAME, REASONS, Family
from offpolicy_monitor.summary.sums import Sums


@cache
def _nothing(family: str) -> Counted:
    return Counted.nothing(BY_NAME[family])


@dataclass
class RunCounts:
    """Totals of one run by (counter's name, reason or ""), and what was counted of its gaps."""

    totals: Counter[tuple[str, str]] = field(default_factory=Counter)
    histograms: dict[str, Exposed] = field(default_factory=dict)

    def add_shard(self, counts: Sums, histograms: Histograms) -> None:
        """Count one stored shard, of which `counts` are those of its whole batch."""
        self.totals["batches_total", ""] += 1
        for name in ("tokens", "sequences"):
            self.totals[f"{name}_total", ""] += int(counts.get(name, 0))
        for name, reasons in REASONS.items():
            for reason in reasons:
                self.totals[name, reason] += int(counts.get(f"{reason}_tokens", 0))
        for gap, counted in histograms.items():
            held = self.histograms.get(gap)
            self.histograms[gap] = counted if held is None else held.plus(counted)

    @property
    def gaps(self) -> tuple[str, ...]:
        """The gaps of which anything was counted."""
        return tuple(sorted(self.histograms))

    def counted(self, family: Family, gap: str) -> Counted:
        """The histogram of a family and gap; the same object for as long as nothing was added."""
        held = self.histograms.get(gap)
        return _nothing(family.name) if held is None else held.families[family.name]


class RunCounters:
    """The counts of the most recently active runs."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._runs: OrderedDict[str, RunCounts] = OrderedDict()
        self._lock = threading.Lock()

    def stored(self, run: str, counts: Sums, histograms: Histograms) -> None:
        """One shard was stored for the first time."""
        with self._lock:
            self._of(run).add_shard(counts, histograms)

    def duplicate(self, run: str) -> None:
        """A shard came again with the same content."""
        with self._lock:
            self._of(run).totals["duplicate_batches_total", ""] += 1

    def forget(self, run: str) -> None:
        """A run was deleted."""
        with self._lock:
            self._runs.pop(run, None)

    def runs(self) -> list[str]:
        """The runs of which anything was counted."""
        with self._lock:
            return list(self._runs)

    def snapshot(self, run: str) -> RunCounts:
        """A copy of a run's counts; all 0 for a run that this process has not heard of."""
        with self._lock:
            held = self._runs.get(run, RunCounts())
            return RunCounts(Counter(held.totals), dict(held.histograms))

    def _of(self, run: str) -> RunCounts:
        counts = self._runs.setdefault(run, RunCounts())
        self._runs.move_to_end(run)
        while len(self._runs) > self._limit:
            self._runs.popitem(last=False)
        return counts
