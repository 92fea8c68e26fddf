"""Shards are counted some at a time, and whoever reads sees all of them."""

import pytest
from offpolicy_monitor.exposition import counters as module
from offpolicy_monitor.exposition.counters import RunCounters, RunCounts

from tests.fixtures.shards import make_summary


def read(counters: RunCounters, run: str) -> tuple[dict[tuple[str, str], int], list[int]]:
    held: RunCounts = counters.snapshot(run)
    return {name: number for name, number in held.totals.items() if number}, held.histograms["mismatch"].tokens.tolist()


@pytest.mark.parametrize("most", [0, 3, 1 << 16])
def test_what_is_counted_does_not_follow_from_how_many_wait(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    one_by_one = RunCounters(9)
    for seed in range(5):
        one_by_one.stored("a", make_summary(seed))
        one_by_one.runs()  # everything is counted
    monkeypatch.setattr(module, "MOST_WAITING", most)
    together = RunCounters(9)
    for seed in range(5):
        together.stored("a", make_summary(seed))
        together.stored("b", make_summary(seed))
    assert read(together, "a") == read(together, "b") == read(one_by_one, "a")
    assert read(together, "a")[0]["batches_total", ""] == 5


def test_the_runs_that_were_heard_of_last_are_kept() -> None:
    counters = RunCounters(2)
    for run in ("a", "b", "a", "c"):
        counters.stored(run, make_summary(1))
    assert counters.runs() == ["a", "c"]


def test_a_run_that_is_forgotten_is_not_counted_later() -> None:
    counters = RunCounters(2)
    counters.stored("a", make_summary(1))
    counters.forget("a")
    assert counters.runs() == [] and not counters.snapshot("a").totals


def test_duplicates_are_counted_with_what_was_stored_before() -> None:
    counters = RunCounters(2)
    counters.stored("a", make_summary(1))
    counters.duplicate("a")
    assert read(counters, "a")[0].items() >= {("batches_total", ""): 1, ("duplicate_batches_total", ""): 1}.items()
