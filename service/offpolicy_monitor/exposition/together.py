"""Counts of several processes, as one: what a process has counted as plain bytes, and the sum over processes.

Counters and histograms add up. What a gauge of the service is of several processes its family says. Knows no files
and no processes.
"""

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import add
from typing import Any, Final

import numpy as np
from prometheus_client.core import Metric

from offpolicy_monitor.exposition.counters import RunCounts
from offpolicy_monitor.exposition.histograms import Exposed
from offpolicy_monitor.families import PREFIX, PROCESS

#: Name, help and type of a family, and its samples: by (name, labels in their order) the value.
Sample = tuple[str, tuple[tuple[str, str], ...]]
Families = dict[tuple[str, str, str], dict[Sample, float]]
#: What adds up; the rest are gauges.
TOTALS: Final = ("counter", "histogram")
_OVER: Final[Mapping[str, Callable[[float, float], float]]] = {"sum": add, "max": max, "min": min}
_GAUGES: Final = {f"{PREFIX}{family.name}": _OVER[family.over_workers] for family in PROCESS}


@dataclass
class Tally:
    """What one process has counted: families of the process itself, and of each run its counts, packed."""

    process: Families = field(default_factory=dict)
    runs: dict[str, bytes] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """As bytes."""
        process = [
            [*family, [[name, labels, value] for (name, labels), value in of.items()]]
            for family, of in self.process.items()
        ]
        runs = [[run, len(packed)] for run, packed in self.runs.items()]
        head = json.dumps([process, runs]).encode()
        return b"".join([len(head).to_bytes(8, "big"), head, *self.runs.values()])

    @classmethod
    def from_bytes(cls, stored: bytes) -> "Tally":
        """What `to_bytes` gave."""
        end = 8 + int.from_bytes(stored[:8], "big")
        process, runs = json.loads(stored[8:end])
        found = cls({(name, help, type): _samples(of) for name, help, type, of in process})
        for run, size in runs:
            found.runs[run] = stored[end : end + size]
            end += size
        return found


def _samples(stored: Iterable[Any]) -> dict[Sample, float]:
    return {(name, tuple((label, text) for label, text in labels)): value for name, labels, value in stored}


def collected(metrics: Iterable[Metric]) -> Families:
    """Families of prometheus_client."""
    return {
        (metric.name, metric.documentation, metric.type): {
            (sample.name, tuple(sample.labels.items())): sample.value for sample in metric.samples
        }
        for metric in metrics
    }


def metrics(families: Families) -> Iterable[Metric]:
    """The same, as prometheus_client's encoders want them."""
    for (name, help, type), samples in families.items():
        metric = Metric(name, help, type)
        for (sample, labels), value in samples.items():
            metric.add_sample(sample, dict(labels), value)
        yield metric


def totals(families: Families) -> Families:
    """What adds up, and goes on where a process takes the place of another."""
    return {family: samples for family, samples in families.items() if family[2] in TOTALS}


def added(processes: Sequence[Families]) -> Families:
    """The families of several processes as those of one."""
    found: Families = {}
    for families in processes:
        for family, samples in families.items():
            together = add if family[2] in TOTALS else _GAUGES[family[0]]
            held = found.setdefault(family, {})
            for sample, value in samples.items():
                held[sample] = together(held[sample], value) if sample in held else value
    return found


def packed(counts: RunCounts) -> bytes:
    """The counts of a run as bytes."""
    totals = [[*name, number] for name, number in counts.totals.items()]
    gaps = [[gap, len(of.tokens), len(of.sequences), of.sums] for gap, of in counts.histograms.items()]
    arrays = [array.tobytes() for of in counts.histograms.values() for array in (of.tokens, of.sequences)]
    return b"\n".join([json.dumps([totals, gaps]).encode(), b"".join(arrays)])


def unpacked(stored: bytes) -> RunCounts:
    """What `packed` gave."""
    head, _, rest = stored.partition(b"\n")
    totals, gaps = json.loads(head)
    counts = RunCounts(Counter({(name, reason): number for name, reason, number in totals}))
    values, at = np.frombuffer(rest, np.int64), 0
    for gap, tokens, sequences, (first, second, third) in gaps:
        middle, end = at + tokens, at + tokens + sequences
        counts.histograms[gap] = Exposed(values[at:middle], values[middle:end], (first, second, third))
        at = end
    return counts


class Together:
    """The counts of runs over processes: sums are kept for as long as what they are of stays the same."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._unpacked: dict[tuple[int, str], tuple[bytes, RunCounts]] = {}
        self._sums: dict[tuple[str, str], tuple[list[Exposed], Exposed]] = {}
        self._processes: list[Mapping[str, RunCounts]] = []

    def take(self, processes: Sequence[Mapping[str, RunCounts | bytes]]) -> None:
        """From now on it is of the runs of these processes, packed or not."""
        before, self._unpacked = self._unpacked, {}
        self._processes = []
        for number, stored in enumerate(processes):
            counts = {run: self._counts(number, run, of, before) for run, of in stored.items()}
            self._processes.append(counts)
        runs = {run for process in self._processes for run in process}
        self._sums = {key: of for key, of in self._sums.items() if key[0] in runs}

    def runs(self) -> list[str]:
        """The runs of which anything was counted: of too many, those that each process heard of last."""
        newest = [list(process)[::-1] for process in self._processes]
        longest = max(map(len, newest), default=0)
        found = dict.fromkeys(runs[at] for at in range(longest) for runs in newest if at < len(runs))
        return list(found)[: self._limit]

    def snapshot(self, run: str) -> RunCounts:
        """The counts of a run; all 0 for one that nobody has heard of."""
        counts = [process[run] for process in self._processes if run in process]
        gaps = dict.fromkeys(gap for of in counts for gap in of.histograms)
        totals: Counter[tuple[str, str]] = sum((of.totals for of in counts), Counter())
        return RunCounts(totals, {gap: self._sum(run, gap, counts) for gap in gaps})

    def _counts(
        self,
        number: int,
        run: str,
        stored: RunCounts | bytes,
        before: Mapping[tuple[int, str], tuple[bytes, RunCounts]],
    ) -> RunCounts:
        if isinstance(stored, RunCounts):
            return stored
        known = before.get((number, run))
        if known is None or known[0] != stored:
            known = stored, unpacked(stored)
        self._unpacked[number, run] = known
        return known[1]

    def _sum(self, run: str, gap: str, counts: Collection[RunCounts]) -> Exposed:
        parts = [of.histograms[gap] for of in counts if gap in of.histograms]
        if len(parts) == 1:
            return parts[0]
        before, sum = self._sums.get((run, gap), ([], parts[0]))
        if [*map(id, before)] != [*map(id, parts)]:
            before, sum = self._sums[run, gap] = parts, reduce(Exposed.plus, parts)
        return sum
