"""RunCounters: what this process stored of each run since it started.

They start at 0 with the process, as Prometheus counters may; the history is in the store. Written by the event loop,
read by a scrape in another thread. At most `limit` runs are kept, the most recently active. Shards are counted some at
a time, and before anybody reads: together each takes less.
"""

import threading
from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import groupby
from typing import Final

from offpolicy_monitor.exposition.histograms import Counted, Exposed, OfShard, exposed
from offpolicy_monitor.families import BY_NAME, REASONS, Family
from offpolicy_monitor.summary.step import StepSummary
from offpolicy_monitor.summary.sums import Sums

#: Entries of shards that wait to be counted, of all runs: a megabyte, which is some thirty shards of 2,000 tokens.
MOST_WAITING: Final = 1 << 16


@cache
def _nothing(family: str) -> Counted:
    return Counted.nothing(BY_NAME[family])


@dataclass
class RunCounts:
    """Totals of one run by (counter's name, reason or ""), and what was counted of its gaps."""

    totals: Counter[tuple[str, str]] = field(default_factory=Counter)
    histograms: dict[str, Exposed] = field(default_factory=dict)

    def add(self, shards: "Sequence[_Shard]") -> None:
        """Count stored shards."""
        self.totals["batches_total", ""] += len(shards)
        for name in ("tokens", "sequences"):
            self.totals[f"{name}_total", ""] += _total(shards, name)
        for name, reasons in REASONS.items():
            for reason in reasons:
                self.totals[name, reason] += _total(shards, f"{reason}_tokens")
        for _, alike in groupby((shard.added for shard in shards), key=lambda added: (added.gaps, id(added.scheme))):
            for gap, counted in exposed([*alike]).items():
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


@dataclass(frozen=True)
class _Shard:
    """Of a stored shard the counts of its whole batch, and what it adds to histograms."""

    counts: Sums
    added: OfShard


def _total(shards: Iterable[_Shard], name: str) -> int:
    return sum(int(shard.counts.get(name, 0)) for shard in shards)


class RunCounters:
    """The counts of the most recently active runs."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._runs: OrderedDict[str, RunCounts] = OrderedDict()
        self._waiting: OrderedDict[str, list[_Shard]] = OrderedDict()
        self._entries = 0
        self._lock = threading.Lock()

    def go_on(self, runs: Mapping[str, RunCounts]) -> None:
        """Count from here on, where another process has stopped; before anything is counted."""
        with self._lock:
            self._runs.update(runs)

    def stored(self, run: str, summary: StepSummary) -> None:
        """One shard was stored for the first time."""
        shard = _Shard(summary.batch, OfShard.of(summary))
        with self._lock:
            self._waiting.setdefault(run, []).append(shard)
            self._waiting.move_to_end(run)
            self._entries += 1 + len(shard.added.where)
            if self._entries > MOST_WAITING:
                self._count()

    def duplicate(self, run: str) -> None:
        """A shard came again with the same content."""
        with self._lock:
            self._count()
            self._of(run).totals["duplicate_batches_total", ""] += 1

    def forget(self, run: str) -> None:
        """A run was deleted."""
        with self._lock:
            self._count()
            self._runs.pop(run, None)

    def runs(self) -> list[str]:
        """The runs of which anything was counted."""
        with self._lock:
            self._count()
            return list(self._runs)

    def snapshot(self, run: str) -> RunCounts:
        """A copy of a run's counts; all 0 for a run that this process has not heard of."""
        with self._lock:
            self._count()
            held = self._runs.get(run, RunCounts())
            return RunCounts(Counter(held.totals), dict(held.histograms))

    def _count(self) -> None:
        """Count what waits for it."""
        for run, shards in self._waiting.items():
            self._of(run).add(shards)
        self._waiting.clear()
        self._entries = 0

    def _of(self, run: str) -> RunCounts:
        counts = self._runs.setdefault(run, RunCounts())
        self._runs.move_to_end(run)
        while len(self._runs) > self._limit:
            self._runs.popitem(last=False)
        return counts
