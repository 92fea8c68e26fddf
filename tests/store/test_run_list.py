"""Lists of runs: newest or worst first, by a pattern, with what each has come to, kept and extended as runs go on."""

from collections.abc import Callable
from contextlib import closing
from typing import Any

import numpy as np
import pytest
from offpolicy_monitor.alerts import Rule
from offpolicy_monitor.alerts.comparisons import figure
from offpolicy_monitor.errors import Refusal
from offpolicy_monitor.server.judge import RulesJudge
from offpolicy_monitor.store import Store
from offpolicy_monitor.store.rows import overviews, run_list

from tests.fixtures.shards import make_record
from tests.fixtures.stores import Clock

Open = Callable[..., Store]
#: By tokens: informed above 120, warned above 150, critical above 250.
LOUD = Rule(
    "Loud", "A test", ("tokens",), figure("tokens"), "tokens", {"info": 120, "warning": 150, "critical": 250},
    {"info": 1, "warning": 1, "critical": 1}, "test",
)  # fmt: skip
PATHS = ("gaps.mismatch.k3", "tokens")


def record(run: str, step: int, **more: Any) -> Any:
    return make_record(step, run=run, minibatches=1, **more)


def names(store: Store, **options: Any) -> list[str]:
    return [row["run"] for row in store.runs(**options).rows]


@pytest.fixture
def fleet(open_store: Open, clock: Clock) -> Store:
    """One run of each kind, named for it, the worst neither first nor last; all of one step."""
    store = open_store(judge=RulesJudge([LOUD]))
    clock.now = 1000.0
    store.ingest([record("silent", 0, tokens=300, received_at=1000.0)])
    clock.now = 5000.0
    tokens = {"healthy": 100, "warning": 200, "finished": 300, "critical": 300, "informed": 130, "critical2": 300}
    for run, count in tokens.items():
        store.ingest([record(run, 0, tokens=count, received_at=5000.0)])
    store.update_run("finished", finished=True)
    return store


def test_the_worst_come_first_and_the_newest_of_equals(fleet: Store) -> None:
    wanted = ["critical2", "critical", "silent", "warning", "informed", "healthy", "finished"]
    assert names(fleet, order="worst") == wanted
    pages, cursor = [], None
    while True:
        page = fleet.runs(2, cursor, "worst")
        pages += [row["run"] for row in page.rows]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert pages == wanted
    assert names(fleet) == ["critical2", "informed", "critical", "finished", "warning", "healthy", "silent"]


def test_alerts_that_are_active_are_counted(fleet: Store) -> None:
    counts = {row["run"]: row["active_alerts"] for row in fleet.runs().rows}
    assert counts == {
        "silent": 3,
        "healthy": 0,
        "warning": 2,
        "finished": 0,
        "critical": 3,
        "informed": 1,
        "critical2": 3,
    }


def test_a_pattern_is_found_in_names_and_labels(fleet: Store) -> None:
    fleet.update_run("healthy", labels={"gpu": "h100", "team": "b"})
    assert names(fleet, pattern="^crit") == ["critical2", "critical"]
    assert names(fleet, pattern="gpu=h[12]00") == ["healthy"]
    assert names(fleet, pattern="^crit", order="worst", limit=1) == ["critical2"]
    assert names(fleet, pattern="nothing") == []
    first = fleet.runs(1, None, "newest", "i")
    assert names(fleet, limit=9, cursor=first.next_cursor, pattern="i")[0] == "informed"


@pytest.mark.parametrize("pattern", ["(", "[z-a]", "*", "(?P<n>a)(?P<n"])
def test_a_pattern_that_is_none_is_refused_by_its_name(fleet: Store, pattern: str) -> None:
    with pytest.raises(Refusal) as caught:
        fleet.runs(pattern=pattern)
    assert (caught.value.status, [error.field for error in caught.value.errors]) == (422, ["q"])


def test_a_pattern_that_takes_for_ever_ends_soon(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_list, "MATCH_SECONDS", 0.05)
    store.ingest([make_record(run="a" * 100)])
    with pytest.raises(Refusal) as caught:
        store.runs(pattern=r"^(a?|b?)*(a|aa)*(a*)*\d$")
    assert (caught.value.kind, [error.field for error in caught.value.errors]) == ("over-limit", ["q"])


def test_a_cursor_of_one_order_is_none_of_the_other(fleet: Store) -> None:
    cursor = fleet.runs(1, None, "worst").next_cursor
    with pytest.raises(Refusal) as caught:
        fleet.runs(1, cursor, "newest")
    assert [error.field for error in caught.value.errors] == ["cursor"]


def test_a_spark_is_the_extremes_of_all_steps(store: Store) -> None:
    store.ingest([make_record(step, minibatch=part) for step in range(200) for part in (0, 1)])
    whole = store.series("r1", "gaps.mismatch.k3", by="step")["value"]
    spark = store.run("r1")["spark"]
    assert spark["field"] == "gaps.mismatch.k3"
    assert len(spark["values"]) <= 48
    assert (min(spark["values"]), max(spark["values"])) == (min(whole), max(whole))
    assert spark["values"] == store.series("r1", "gaps.mismatch.k3", by="step", points=48)["value"]


def test_how_fast_a_run_steps_and_when_it_is_silent(open_store: Open, clock: Clock) -> None:
    store = open_store(judge=RulesJudge([LOUD]))
    for step in range(6):
        clock.now = 1000.0 + 300 * step
        store.ingest([record("r1", step, received_at=clock.now)])
    run = store.run("r1")
    assert (run["steps"], run["steps_per_minute"], run["median_step_seconds"], run["silent_after"]) == (
        6,
        0.2,
        300,
        900,
    )
    clock.now += 899
    assert store.run("r1")["state"] == "live"
    clock.now += 2
    assert store.run("r1")["state"] == "silent"


def test_a_run_that_lacks_shards_has_no_step_that_counts_and_no_spark(store: Store) -> None:
    store.ingest([make_record(1, 0, 2)])
    run = store.run("r1")
    assert (run["last_step"], run["steps"], run["steps_per_minute"], run["spark"]) == (1, 0, None, None)


def seen(store: Store) -> list[Any]:
    """All that is kept of run r1, as plain values."""
    overview = store.view_run("r1").overview
    tables = (overview.drawn, overview.first, overview.newest)
    return [(table.steps.tolist(), np.nan_to_num(table.figures, nan=-1).tolist()) for table in tables]


def test_what_is_kept_of_a_run_is_what_a_new_process_reads(open_store: Open, clock: Clock) -> None:
    """However it grew: step by step, by late gradient steps, by a late shard, by another attempt, out of order."""
    store = open_store(judge=RulesJudge([LOUD]), watched=PATHS)
    groups = [[record("r1", step)] for step in range(0, 90, 3)]
    groups += [[make_record(88, shards=2)], [make_record(90), make_record(91)], [make_record(88, 1, shards=2)]]
    groups += [[make_record(91, minibatch=1)], [make_record(86, tokens=7)]]
    groups += [[record("r1", step, attempt=1, tokens=55)] for step in range(60, 70)]
    for group in groups:
        clock.now += 1
        store.ingest(group)
        kept = seen(store)
        fresh = overviews.Overviews(PATHS)
        store._overviews, mine = fresh, store._overviews
        assert seen(store) == kept
        store._overviews = mine


def test_a_late_shard_of_an_old_step_is_seen_within_a_minute(open_store: Open, clock: Clock) -> None:
    store = open_store(watched=PATHS)
    store.ingest([make_record(0, shards=2), *(make_record(step) for step in range(1, 30))])
    assert store.run("r1")["steps"] == 29
    clock.now += 1
    store.ingest([make_record(0, 1, shards=2)])
    clock.now += overviews.RELOAD_SECONDS
    store.ingest([make_record(30)])
    assert store.run("r1")["steps"] == 31


def test_of_those_who_ask_at_once_one_reads_all_steps_again(
    open_store: Open, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(watched=PATHS)
    store.ingest([make_record(step) for step in range(30)])
    store.view_run("r1")
    clock.now += overviews.RELOAD_SECONDS
    store.ingest([make_record(30)])
    real, extended, meanwhile = overviews.Overviews._changed, list[bool](), list[int]()

    def changed(self: Any, connection: Any, rows: Any, known: Any, now: float) -> Any:
        extended.append(bool(known))
        if not known:
            meanwhile.append(store.run("r1")["steps"])
        return real(self, connection, rows, known, now)

    monkeypatch.setattr(overviews.Overviews, "_changed", changed)
    assert store.run("r1")["steps"] == 31 and meanwhile == [31]
    assert extended == [False, True]
    # What was read whole is kept, whoever was quicker.
    store.ingest([make_record(31)])
    assert store.run("r1")["steps"] == 32 and extended == [False, True, True]


def test_a_run_that_stands_still_is_not_read_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.ingest([make_record(step) for step in range(5)])
    before = store.view_run("r1").overview
    assert store.view_run("r1").overview is before
    store.update_run("r1", labels={"a": "b"})
    assert store.view_run("r1").overview is not before


def test_of_many_runs_those_asked_for_longest_ago_are_forgotten(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overviews, "MOST_RUNS", 2)
    store.ingest([make_record(run=name) for name in ("a", "b", "c")])
    assert len(store.runs().rows) == 3
    assert len(store._overviews._kept) == 2


def test_a_window_is_the_steps_asked_for(open_store: Open) -> None:
    with closing(open_store(watched=PATHS)) as store:
        store.ingest([make_record(step, tokens=10 + step) for step in range(9)])
        found = store.window(store.view_run("r1").id, 3, 5)
        assert found.steps.tolist() == [3, 4, 5]
        assert found.figures[PATHS.index("tokens")].tolist() == [13, 14, 15]
