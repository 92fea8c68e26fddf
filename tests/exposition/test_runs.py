"""What is kept between scrapes: figures of a run are read when it has moved, once for each format, and else never."""

from dataclasses import dataclass, field, replace
from typing import Any

from offpolicy_monitor.exposition.counters import RunCounters
from offpolicy_monitor.exposition.formats import DELIMITED, OPENMETRICS, TEXT, Format
from offpolicy_monitor.exposition.runs import RunExposition
from offpolicy_monitor.families import RUN_COUNTERS, RUN_HISTOGRAMS

from tests.fixtures.shards import make_summary


@dataclass(frozen=True)
class Row:
    """A run's row; `read` has the run once for each time that its figures were unpacked."""

    run: str
    read: list[str] = field(compare=False)
    step: int | None = 1
    stored_figures: bytes | None = b"1"
    stored_states: bytes | None = None
    overrides: dict[str, Any] | None = None
    profile: str = "dense_bf16"
    last_batch: float = 10.0
    policy_version: int | None = None
    minibatch: int | None = 0
    attempt: int | None = 0
    coverage: float | None = 1.0
    step_seconds: float | None = None
    open_since: float | None = None
    finished: bool = False
    states: tuple[dict[str, Any], ...] = ()

    @property
    def figures(self) -> dict[str, Any]:
        self.read.append(self.run)
        return {"gaps": {"mismatch": {"k3": float(self.stored_figures or 0)}}}


class Runs:
    """Two runs of a store, and the exposition of them."""

    def __init__(self) -> None:
        self.read: list[str] = []
        self.rows = {name: Row(name, self.read) for name in ("a", "b")}
        self.exposition = RunExposition(lambda: list(self.rows.values()), RunCounters(9))

    def change(self, run: str, **values: Any) -> None:
        self.rows[run] = replace(self.rows[run], **values)

    def scraped(self, format: Format = TEXT) -> tuple[str, list[str]]:
        """The document, and which runs' figures it took to make it."""
        self.read.clear()
        return b"".join(self.exposition.render(format)).decode(errors="replace"), list(self.read)


def test_the_figures_of_a_run_are_read_when_it_has_moved() -> None:
    runs = Runs()
    assert runs.scraped()[1] == ["a", "b"]
    assert runs.scraped()[1] == []
    runs.change("b", step=2, stored_figures=b"3")
    text, read = runs.scraped()
    assert read == ["b"]
    assert 'offpolicy_kl_nats{estimator="k3",gap="mismatch",run="b"} 3.0\n' in text
    assert 'offpolicy_kl_nats{estimator="k3",gap="mismatch",run="a"} 1.0\n' in text


def test_whatever_a_run_shows_that_changes_is_shown_anew() -> None:
    changes: tuple[dict[str, Any], ...] = (
        {"stored_figures": b"2"},  # a shard that came late, to the same step
        {"stored_states": b"x"},
        {"overrides": {"MismatchKL": {"warning": 1.0}}},
        {"coverage": 0.5},
        {"finished": True},
        {"attempt": 1},
        {"minibatch": 3},
        {"open_since": 4.0},
        {"step_seconds": 5.0},
        {"last_batch": 6.0},
        {"policy_version": 7},
    )
    runs = Runs()
    runs.scraped()
    for change in changes:
        runs.change("a", **change)
        assert runs.scraped()[1] == ["a"], change
        assert runs.scraped()[1] == []


def test_each_format_keeps_its_own_and_two_by_turns_disturb_each_other_in_nothing() -> None:
    runs = Runs()
    for format in (TEXT, OPENMETRICS, DELIMITED):
        assert runs.scraped(format)[1] == ["a", "b"]
    assert [runs.scraped(format)[1] for format in (DELIMITED, TEXT, OPENMETRICS)] == [[], [], []]
    runs.change("a", step=2)
    assert [runs.scraped(format)[1] for format in (DELIMITED, TEXT, TEXT)] == [["a"], ["a"], []]


def test_a_run_that_left_is_shown_no_more_and_comes_back_as_it_is_then() -> None:
    runs = Runs()
    runs.scraped()
    gone = runs.rows.pop("b")
    assert 'run="b"' not in runs.scraped()[0]
    runs.rows["b"] = gone
    text, read = runs.scraped()
    assert read == ["b"] and 'offpolicy_step{run="b"} 1.0\n' in text


def test_where_another_process_shows_the_runs_only_what_this_one_counted_is_shown() -> None:
    counters = RunCounters(9)
    [gap] = (summary := make_summary(1)).gaps
    counters.stored("a", summary)
    rows: list[Row] | None = None
    exposition = RunExposition(lambda: rows, counters)
    text = b"".join(exposition.render(TEXT)).decode()
    assert 'offpolicy_tokens_total{run="a"} 100.0\n' in text
    assert f'offpolicy_token_log_ratio_nats_bucket{{gap="{gap}",le="+Inf",run="a"}} 100.0\n' in text
    families = {line.partition("{")[0] for line in text.splitlines() if not line.startswith("#")}
    assert families <= {
        *(family.full_name for family in RUN_COUNTERS),
        *(f"{family.full_name}_bucket" for family in RUN_HISTOGRAMS),
    }
    rows = [Row("b", [])]
    assert 'run="a"' not in b"".join(exposition.render(TEXT)).decode()
