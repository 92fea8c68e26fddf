"""Published: what each worker has counted, in a file of its own, so that whoever is asked shows the counts of all.

A worker writes its file when a sibling asks for it and before it shows its own counts: nothing is ever shown that is
not written. Who takes the place of a dead worker goes on from its file. So no counter that was shown ever goes back.
Knows the counts as bytes; the folder is for its owner alone.
"""

import os
import threading
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Final

import structlog
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric

from offpolicy_monitor.exposition import together
from offpolicy_monitor.exposition.counters import RunCounters, RunCounts
from offpolicy_monitor.exposition.together import Families, Tally, Together

log = structlog.get_logger("offpolicy_monitor.server")
#: How long siblings have to write their files, seconds; of one that does not, what it wrote before is shown.
WITHIN: Final = 0.5
#: How often each writes its file anyway: what was counted since is lost where it is killed.
EVERY: Final = 2.0


class Published:
    """Of the worker `number` of so many. `counters` are those of its runs, which go on from what is in its file."""

    def __init__(
        self, folder: Path, number: int, workers: int, registry: CollectorRegistry, counters: RunCounters, limit: int
    ) -> None:
        self._folder, self._number, self._workers = folder, number, workers
        self._registry, self._counters = registry, counters
        before = self._read(number)
        self._before = together.totals(before.process)
        counters.go_on({run: together.unpacked(of) for run, of in before.runs.items()})
        self._shown: Families = {}
        self._one_at_a_time = threading.Lock()
        self.runs = Together(limit)

    def publish(self) -> tuple[Families, dict[str, RunCounts]]:
        """Write what was counted, which is the answer."""
        with self._one_at_a_time:
            process = together.added([self._before, together.collected(self._registry.collect())])
            runs = {run: self._counters.snapshot(run) for run in self._counters.runs()}
            packed = {run: together.packed(counts) for run, counts in runs.items()}
            written = self._folder / f"{self._number}.new"
            try:
                written.write_bytes(Tally(process, packed).to_bytes())
                os.replace(written, self._file(self._number))
            except OSError as error:
                log.error("counts cannot be written: others show those of before", reason=str(error))
        return process, runs

    def gather(self, answering: Collection[int]) -> None:
        """What is shown from now on: the counts of all, and the gauges of those that answer."""
        process, runs = self.publish()
        families, counts = [], list[Mapping[str, RunCounts | bytes]]()
        for number in range(self._workers):  # in one order, so that all show the same sums to the bit
            if number == self._number:
                families.append(process)
                counts.append(runs)
            else:
                other = self._read(number)
                families.append(other.process if number in answering else together.totals(other.process))
                counts.append(other.runs)
        self._shown = together.added(families)
        self.runs.take(counts)

    def collect(self) -> Iterable[Metric]:
        """As a registry of prometheus_client does."""
        return together.metrics(self._shown)

    def _file(self, number: int) -> Path:
        return self._folder / str(number)

    def _read(self, number: int) -> Tally:
        try:
            return Tally.from_bytes(self._file(number).read_bytes())
        except FileNotFoundError:
            return Tally()
