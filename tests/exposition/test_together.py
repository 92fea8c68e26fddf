"""Counts of several processes are shown as one, and none that was shown goes back."""

from functools import partial
from pathlib import Path

import pytest
from offpolicy_monitor.exposition.counters import RunCounters
from offpolicy_monitor.exposition.formats import DELIMITED, OPENMETRICS, TEXT, Format
from offpolicy_monitor.exposition.process import ProcessMetrics
from offpolicy_monitor.exposition.runs import RunExposition
from offpolicy_monitor.exposition.together import packed, unpacked
from offpolicy_monitor.server.workers.published import Published
from prometheus_client import CollectorRegistry

from tests.fixtures.shards import make_summary


class Worker:
    """One of two, with its counts."""

    def __init__(self, folder: Path, number: int, limit: int = 9) -> None:
        registry = CollectorRegistry()
        self.metrics, self.counters = ProcessMetrics(registry), RunCounters(limit)
        self.published = Published(folder, number, 2, registry, self.counters, limit)
        self.runs = RunExposition(lambda: None, self.published.runs)

    def shown(self, answering: set[int], format: Format = TEXT) -> bytes:
        self.published.gather(answering)
        return b"".join([format.process(self.published), *self.runs.render(format)])

    def samples(self, *answering: int) -> dict[str, float]:
        lines = self.shown(set(answering)).decode().splitlines()
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}


def batches(run: str) -> str:
    return f'offpolicy_batches_total{{run="{run}"}}'


@pytest.mark.parametrize("format", [TEXT, OPENMETRICS, DELIMITED])
def test_two_processes_show_what_one_would_that_had_counted_it_all(tmp_path: Path, format: Format) -> None:
    first, second, alone = Worker(tmp_path, 0), Worker(tmp_path, 1), Worker(tmp_path / "alone", 0)
    (tmp_path / "alone").mkdir()
    for seed in range(6):
        for worker in (alone, (first, second)[seed % 2]):
            worker.counters.stored("r", make_summary(seed))
            worker.metrics.request("/v1/x", 200 + seed % 3, 0.25 * 2**seed)
            worker.metrics.received("gzip", 100 + seed)
            worker.metrics.rejected("busy")
    first.published.publish()
    assert second.shown({0}, format) == first.shown({1}, format)
    if format is not DELIMITED:  # native histograms have sums, whose last bit is of the order of summing
        assert sorted(first.shown({1}, format).splitlines()) == sorted(alone.shown(set(), format).splitlines())


def test_gauges_are_of_those_that_answer_and_each_is_what_its_family_says(tmp_path: Path) -> None:
    first, second = Worker(tmp_path, 0), Worker(tmp_path, 1)
    for worker, size, leads, end in ((first, 5, True, 70.0), (second, 7, False, 60.0)):
        worker.metrics.watch_inflight(partial(float, size))
        worker.metrics.watch_leading(partial(bool, leads))
        worker.metrics.watch_certificate("a", partial(float, end))
        worker.published.publish()
    found = second.samples(0)
    ends = 'offpolicy_certificate_expiry_timestamp_seconds{file="a"}'
    assert [found["offpolicy_inflight_bytes"], found["offpolicy_leader"], found[ends]] == [12, 1, 60]
    found = second.samples()  # the leader says nothing: it stands still, or has died
    assert [found["offpolicy_inflight_bytes"], found["offpolicy_leader"]] == [7, 0]


def test_who_takes_the_place_of_a_dead_worker_goes_on_counting_and_nothing_shown_goes_back(tmp_path: Path) -> None:
    first, second = Worker(tmp_path, 0), Worker(tmp_path, 1)
    shown = []
    for seed in range(3):
        first.counters.stored("r", make_summary(seed))
        first.metrics.request("/v1/x", 200, 0.1)
        shown.append(first.samples(1))
    first.counters.stored("r", make_summary(9))  # nobody has been shown this one
    shown.append(second.samples())
    again = Worker(tmp_path, 0)
    shown.append(second.samples(0))
    again.counters.stored("r", make_summary(4))
    again.metrics.request("/v1/x", 200, 0.1)
    shown += [again.samples(1), second.samples(0)]
    for name in (batches("r"), 'offpolicy_request_seconds_count{route="/v1/x",status="200"}'):
        assert [found[name] for found in shown] == [1, 2, 3, 3, 3, 4, 4]


def test_a_folder_that_cannot_be_written_costs_no_scrape(tmp_path: Path) -> None:
    worker = Worker(tmp_path / "away", 0)
    worker.counters.stored("r", make_summary(0))
    assert worker.samples()[batches("r")] == 1


def test_of_too_many_runs_those_heard_of_last_are_shown(tmp_path: Path) -> None:
    first, second = Worker(tmp_path, 0, limit=3), Worker(tmp_path, 1, limit=3)
    for number in range(3):
        first.counters.stored(f"a{number}", make_summary(number))
        second.counters.stored(f"b{number}", make_summary(number))
    first.published.publish()
    found = second.samples(0)
    assert {run for run in ("a0", "a1", "a2", "b0", "b1", "b2") if batches(run) in found} == {"a2", "b2", "a1"}


def test_counts_of_a_run_come_back_as_they_were_packed() -> None:
    counters = RunCounters(9)
    counters.stored("r", make_summary(3))
    counts = counters.snapshot("r")
    found = unpacked(packed(counts))
    assert found.totals == counts.totals
    assert found.histograms.keys() == counts.histograms.keys()
    for gap, of in counts.histograms.items():
        assert found.histograms[gap].tokens.tolist() == of.tokens.tolist()
        assert found.histograms[gap].sequences.tolist() == of.sequences.tolist()
        assert found.histograms[gap].sums == of.sums
