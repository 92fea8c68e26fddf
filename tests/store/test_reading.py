"""Readers see runs, steps and series as protocol.md shapes them, and the gauges' rows never move back."""

from collections.abc import Callable
from contextlib import closing

import pytest
from offpolicy_monitor.errors import Refusal
from offpolicy_monitor.store import Store
from offpolicy_monitor.store.rows.cursors import encode_cursor
from offpolicy_monitor.store.rows.series import Series
from offpolicy_monitor.store.rows.settled import Settled
from offpolicy_monitor.summary.step import merge_all

from tests.fixtures.shards import make_record
from tests.fixtures.stores import Clock


def refused(call: object, *arguments: object, **named: object) -> tuple[int, str, list[str]]:
    assert callable(call)
    with pytest.raises(Refusal) as caught:
        call(*arguments, **named)
    return caught.value.status, caught.value.kind, [error.field for error in caught.value.errors]


def test_runs_are_listed_newest_first_page_by_page(store: Store) -> None:
    for name in ("a", "b", "c"):
        store.ingest([make_record(run=name)])
    first = store.runs(limit=2)
    assert [row["run"] for row in first.rows] == ["c", "b"]
    second = store.runs(limit=2, cursor=first.next_cursor)
    assert [row["run"] for row in second.rows] == ["a"]
    assert second.next_cursor is None


def test_a_run_shows_its_last_step_and_settings(store: Store, clock: Clock) -> None:
    clock.now = 1500.0
    store.ingest([make_record(7, minibatch=1, shards=2, attempt=1, policy_version=3), make_record(9)])
    assert store.run("r1") == {
        "run": "r1",
        "profile": "dense_bf16",
        "labels": {},
        "state": "live",
        "verdict": "accept",
        "last_step": 7,
        "last_minibatch": 1,
        "attempt": 1,
        "policy_version": 3,
        "created_at": "1970-01-01T00:25:00.000Z",
        "last_batch_at": "1970-01-01T00:16:40.000Z",
        "steps": 1,
        "steps_per_minute": None,
        "active_alerts": 0,
        "spark": {"field": "gaps.mismatch.k3", "values": store.series("r1", "gaps.mismatch.k3")["value"]},
        "methods": None,
        "correction": None,
        "length_cap": None,
        "alerts": {},
        "median_step_seconds": 0.0,
        "silent_after": 600.0,
    }


@pytest.mark.parametrize("cursor", ["", "x", "%%%", "WzFd!", encode_cursor(1, 2), encode_cursor(-1), "W3RydWVd", "é"])
def test_a_cursor_that_is_not_ours_is_refused(store: Store, cursor: str) -> None:
    assert refused(store.runs, 10, cursor) == (422, "bad-cursor", ["cursor"])


def test_profile_and_labels_of_a_run_can_be_changed(store: Store) -> None:
    store.ingest([make_record()])
    store.update_run("r1", profile="bitwise")
    changed = store.update_run("r1", labels={"team": "rl"})
    assert (changed["profile"], changed["labels"]) == ("bitwise", {"team": "rl"})
    assert store.exported(9, 0.0)[0].profile == "bitwise"


def test_how_long_answers_may_be_is_kept_and_can_be_given_up(store: Store) -> None:
    store.ingest([make_record()])
    assert store.update_run("r1", length_cap=1 << 40)["length_cap"] == 1 << 40
    assert store.update_run("r1", profile="fp8")["length_cap"] == 1 << 40
    assert store.update_run("r1", length_cap=None)["length_cap"] is None


def test_method_rows_chosen_for_a_run_are_kept_to_the_bit_and_can_be_given_up(store: Store) -> None:
    assert store.methods("r1") is None
    store.ingest([make_record()])
    assert store.methods("r1") is None
    rows = [{"name": "tight", "method": "opsm", "gap": "total", "level": "geometric", "delta": 0.1 + 0.2}]
    assert store.update_run("r1", methods=rows)["methods"] == rows
    store.update_run("r1", profile="fp8")
    assert store.methods("r1") == rows
    assert store.update_run("r1", methods=[])["methods"] == []
    assert store.methods("r1") == []
    assert store.update_run("r1", methods=None)["methods"] is None
    assert store.methods("r1") is None


def test_method_rows_outlive_the_process_and_go_with_the_run(store: Store, open_store: Callable[[], Store]) -> None:
    rows = [{"name": "tight", "method": "opsm", "gap": "total", "level": "geometric", "delta": 1e-3}]
    store.ingest([make_record(), make_record(run="r2")])
    store.update_run("r1", methods=rows)
    store.close()
    again = open_store()
    assert (again.methods("r1"), again.methods("r2")) == (rows, None)
    assert "methods" not in again.runs().rows[0]
    again.delete_run("r1")
    again.ingest([make_record()])
    assert again.methods("r1") is None


def test_another_process_sees_chosen_method_rows_at_once(postgres_database: Callable[[], str]) -> None:
    url = postgres_database()
    with closing(Store.open(url)) as here, closing(Store.open(url)) as there:
        here.ingest([make_record()])
        assert there.methods("r1") is None
        here.update_run("r1", methods=[])
        assert there.methods("r1") == []


def test_a_finished_run_is_live_again_with_its_next_batch(store: Store) -> None:
    store.ingest([make_record()])
    assert store.update_run("r1", finished=True)["state"] == "finished"
    store.ingest([make_record()])
    assert store.run("r1")["state"] == "finished"
    store.ingest([make_record(1)])
    assert store.run("r1")["state"] == "live"


def test_a_finished_run_stays_so_where_only_the_last_shards_of_its_steps_come(store: Store) -> None:
    store.ingest([make_record(0, 0, 2), make_record(1, 0, 2)])
    store.update_run("r1", finished=True)
    store.ingest([make_record(0, 1, 2), make_record(1, 1, 2)])
    assert (store.run("r1")["state"], store.step("r1", 1)["complete"]) == ("finished", True)
    store.ingest([make_record(1, 0, 2, minibatch=1)])
    assert store.run("r1")["state"] == "live"


@pytest.mark.parametrize(("now", "state"), [(1600.0, "live"), (1601.0, "silent")])
def test_a_run_without_a_usual_step_time_is_silent_after_ten_minutes(
    store: Store, clock: Clock, now: float, state: str
) -> None:
    store.ingest([make_record(received_at=1000.0)])
    clock.now = now
    assert store.run("r1")["state"] == state


@pytest.mark.parametrize(("now", "state"), [(4900.0, "live"), (4901.0, "silent")])
def test_a_run_is_silent_after_three_times_its_median_step_time(
    store: Store, clock: Clock, now: float, state: str
) -> None:
    times = {0: 1000.0, 1: 1300.0, 2: 1600.0, 3: 1900.0, 4: 4000.0}
    records = [make_record(step, received_at=at) for step, at in times.items()]
    records += [make_record(step, minibatch=1, received_at=at + 1) for step, at in times.items() if step < 4]
    store.ingest(records)
    clock.now = now
    assert store.run("r1")["state"] == state


def test_whatever_names_an_unknown_run_is_404(store: Store) -> None:
    expected: tuple[int, str, list[str]] = (404, "unknown-run", [])
    assert refused(store.run, "r1") == expected
    assert refused(store.update_run, "r1", profile="moe") == expected
    assert refused(store.delete_run, "r1") == expected
    assert refused(store.steps, "r1") == expected
    assert refused(store.step, "r1", 0) == expected
    assert refused(store.series, "r1", "tokens") == expected


def test_steps_show_the_last_gradient_step_of_each_or_every_one(store: Store) -> None:
    store.ingest([make_record(step, minibatch=m) for step in (1, 2) for m in (0, 1, 2)])
    by_step = store.steps("r1")
    assert [(row["step"], row["minibatch"]) for row in by_step.rows] == [(1, 2), (2, 2)]
    by_minibatch = store.steps("r1", by="minibatch")
    assert [(row["step"], row["minibatch"]) for row in by_minibatch.rows] == [
        (1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (2, 2),
    ]  # fmt: skip


def test_steps_come_in_pages_and_ranges(store: Store) -> None:
    store.ingest([make_record(step, minibatch=m) for step in range(4) for m in (0, 1)])
    seen, cursor = [], None
    while True:
        page = store.steps("r1", first=1, last=2, limit=3, cursor=cursor, by="minibatch")
        seen.append([(row["step"], row["minibatch"]) for row in page.rows])
        cursor = page.next_cursor
        if cursor is None:
            break
    assert seen == [[(1, 0), (1, 1), (2, 0)], [(2, 1)]]
    assert [row["step"] for row in store.steps("r1", first=3).rows] == [3]
    assert refused(store.steps, "r1", by="shard") == (422, "unknown-value", ["by"])


def test_an_incomplete_step_answers_with_the_merge_of_what_arrived(store: Store) -> None:
    store.ingest([make_record(3, i, 4, tokens=10, minibatch=1) for i in (2, 0)])
    row = store.step("r1", 3)
    assert (row["tokens"], row["received_shards"], row["shards"], row["complete"]) == (20, 2, 4, False)
    assert (row["minibatch"], row["minibatches"], row["breakdowns"]) == (1, [1], {})
    assert store.steps("r1").rows[0]["tokens"] == 20


def test_a_step_is_its_last_minibatch_unless_one_is_named(store: Store) -> None:
    store.ingest([make_record(3, minibatch=m, tokens=10 + m) for m in (0, 1, 2)])
    assert store.step("r1", 3)["tokens"] == 12
    assert store.step("r1", 3, 1)["tokens"] == 11
    assert store.step("r1", 3, 1)["minibatches"] == [0, 1, 2]
    assert refused(store.step, "r1", 3, 3) == (404, "unknown-step", [])
    assert refused(store.step, "r1", 4) == (404, "unknown-step", [])


@pytest.mark.parametrize("field", ["gaps.mismatch.k3", "gaps.mismatch.k2", "gaps.mismatch.quantiles.0.001"])
def test_a_series_holds_the_figures_of_the_steps(store: Store, field: str) -> None:
    store.ingest([make_record(step) for step in (1, 2, 3)])
    series = store.series("r1", field)
    name = field.removeprefix("gaps.mismatch.").removeprefix("quantiles.")
    gaps = [row["gaps"]["mismatch"] for row in store.steps("r1").rows]
    assert series["value"] == [gap["quantiles"][name] if name == "0.001" else gap[name] for gap in gaps]
    assert (series["field"], series["step"], series["minibatch"]) == (field, [1, 2, 3], [0, 0, 0])


@pytest.mark.parametrize("field", ["gaps.staleness.k3", "gaps.staleness.k2", "methods.ppo_clip.weight_ess"])
def test_a_figure_that_steps_lack_is_null(store: Store, field: str) -> None:
    store.ingest([make_record(1), make_record(2)])
    assert store.series("r1", field)["value"] == [None, None]


@pytest.mark.parametrize("field", ["", "k3", "gaps", "gaps.mismatch", "gaps.mismatch.k9", "methods.opsm.method", "a.b"])
def test_a_figure_that_does_not_exist_is_refused(store: Store, field: str) -> None:
    store.ingest([make_record(1)])
    assert refused(store.series, "r1", field) == (422, "unknown-field", ["field"])


def test_a_figure_that_only_the_data_knows_can_be_plotted(store: Store) -> None:
    store.ingest([make_record(1)])
    assert store.series("r1", "methods.opsm.delta")["value"] == [1e-4]


def test_a_series_has_a_range_and_leaves_open_steps_out(store: Store) -> None:
    store.ingest([*(make_record(step) for step in range(4)), make_record(4, 0, 2)])
    assert store.series("r1", "tokens", first=1)["step"] == [1, 2, 3]
    assert store.series("r1", "tokens", 1, 2)["step"] == [1, 2]
    assert store.series("r1", "tokens", 9)["step"] == []


def test_a_series_is_thinned_to_the_points_asked_for(store: Store) -> None:
    store.ingest([make_record(step, tokens=5 if step == 13 else 100) for step in range(20)])
    series = store.series("r1", "tokens", points=6)
    assert len(series["step"]) <= 6
    assert 5 in series["value"]


def test_a_figure_that_is_read_off_whole_steps_is_read_off_some_of_a_long_range(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.ingest([make_record(step, tokens=100 + step) for step in range(10)])
    field = "gaps.mismatch.sequence.quantiles.0.5"
    every = dict(zip(*(store.series("r1", field)[name] for name in ("step", "value")), strict=True))
    monkeypatch.setattr("offpolicy_monitor.store.rows.series.MOST_READ", 4)
    monkeypatch.setattr(store, "_series", Series(Settled()))
    series = store.series("r1", field)
    assert series["step"] == [0, 3, 6, 9]
    assert series["value"] == [every[step] for step in series["step"]]
    assert store.series("r1", field, 2, 4)["step"] == [2, 3, 4]
    assert store.series("r1", "tokens")["step"] == list(range(10))


def test_gauges_show_the_latest_step_that_counts_and_never_an_older_one(store: Store) -> None:
    def shown() -> tuple[int | None, int | None, int | None]:
        [row] = store.exported(9, 0.0)
        return row.attempt, row.step, row.minibatch

    store.ingest([make_record(5, 0, 2)])
    assert shown() == (None, None, None)
    store.ingest([make_record(5, 1, 2)])
    assert shown() == (0, 5, 0)
    store.ingest([make_record(4), make_record(6, 0, 2)])
    assert shown() == (0, 5, 0)
    store.ingest([make_record(5, 0, 2, attempt=1)])
    assert shown() == (0, 5, 0)
    store.ingest([make_record(3, attempt=1)])
    assert shown() == (1, 3, 0)
    store.ingest([make_record(5, 1, 2, attempt=1)])
    assert shown() == (1, 5, 0)


def test_exported_runs_are_the_most_recently_active(store: Store) -> None:
    store.ingest([make_record(run=name, received_at=at) for name, at in (("a", 10.0), ("b", 30.0), ("c", 20.0))])
    assert [row.run for row in store.exported(2, 0.0)] == ["b", "c"]
    assert [row.run for row in store.exported(9, 15.0)] == ["b", "c"]
    [row] = store.exported(1, 0.0)
    assert (row.last_batch, row.coverage, row.profile, row.figures["tokens"]) == (30.0, 1.0, "dense_bf16", 100)


def test_whole_steps_are_the_merge_of_all_their_gradient_steps(store: Store) -> None:
    records = [make_record(step, minibatch=minibatch) for step in (3, 4, 5) for minibatch in range(3)]
    store.ingest(records)
    found = store.whole_summaries("r1", first=4, most=9)
    assert [step for step, _ in found] == [4, 5]
    for step, summary in found:
        of_step = [record.summary for record in records if record.key.step == step]
        assert summary.batch == merge_all(of_step).batch
        assert summary.gap_records["gaps"]["k3"].tolist() == merge_all(of_step).gap_records["gaps"]["k3"].tolist()
    assert store.whole_summaries("r1", first=6) == []
    [(_, last)] = store.whole_summaries("r1", most=1)
    assert last.batch == found[1][1].batch
