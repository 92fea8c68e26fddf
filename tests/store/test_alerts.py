"""What the rules say is kept with the step that it was said of, on SQLite and on PostgreSQL, and told once."""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from offpolicy_monitor.alerts import Episode
from offpolicy_monitor.alerts.episodes import CALM
from offpolicy_monitor.alerts.roots import with_roots
from offpolicy_monitor.server.judge import FIELDS, RulesJudge
from offpolicy_monitor.store import Receipt, Store
from offpolicy_monitor.store.rows import alerts
from offpolicy_monitor.store.rows.held import HeldRun
from offpolicy_monitor.store.rows.histories import RunHistory
from offpolicy_monitor.store.session import Database, parse_url
from offpolicy_monitor.store.write import judge
from offpolicy_monitor.store.write.finish import MOST
from offpolicy_monitor.store.write.judge import Judge
from sqlalchemy import Connection, text

from tests.fixtures import shards
from tests.fixtures.stores import Clock

Open = Callable[..., Store]
#: Shards of training steps of one gradient step, as they say.
make_record = partial(shards.make_record, minibatches=1)


@dataclass
class Script(Judge):
    """A judge that says what the test wants: severities of the rule Loud by step, of which the worst speaks for the
    others; RunSilent after 600 s."""

    severities: dict[int, tuple[str, ...]]
    paths: Sequence[str] = ("tokens", "gaps.mismatch.k3", "policy_version")
    of_all: Collection[str] = ("tokens",)
    seen: RunHistory | None = None

    def steps(self, run: HeldRun, history: RunHistory, before: Sequence[Any]) -> tuple[list[dict[str, Any]], list[Any]]:
        self.seen = history
        step = history.steps[-1]
        wanted = self.severities.get(step, ())
        known = {row["severity"]: row for row in before if row["alert"] == "Loud"}
        after = [episode(severity, step, known.get(severity)) for severity in wanted]
        ended = [
            {**row, "state": "resolved"}
            for severity, row in known.items()
            if severity not in wanted and row["state"] == "active"
        ]
        states = [{"alert": "Loud", "severity": severity, "breach_steps": 1, "state": "active"} for severity in wanted]
        remain = [*after, *ended, *(row for row in before if row["alert"] != "Loud")]
        fields: list[dict[str, Any]] = [{name: row[name] for name in FIELDS} for row in remain]
        episodes = [Episode(**known) for known in fields]
        return states, [vars(one) for one in with_roots(episodes, step)]

    def timing(
        self, run: HeldRun, step_seconds: float | None, silence: float, open_for: float | None, before: Sequence[Any]
    ) -> list[Any]:
        return RulesJudge().timing(run, step_seconds, silence, open_for, before)


def episode(severity: str, step: int, before: Mapping[str, Any] | None) -> dict[str, Any]:
    """One that is active at a step, and has been since `before`."""
    since = step if before is None else before["since_step"]
    kept = {name: None if before is None else before[name] for name in ("inhibited_by", "told_from", "quiet_since")}
    found = {"alert": "Loud", "severity": severity, "state": "active", "since_step": since, "last_step": step}
    steps = {"active_step": step, "resolved_step": None, "message": None}
    return {**found, "breach_steps": step - since + 1, "value": 2.0, "threshold": 1.0, "peak": 3.0, **steps, **kept}


def judged(open_store: Open, severities: dict[int, tuple[str, ...]]) -> tuple[Store, Script]:
    script = Script(severities)
    return open_store(judge=script), script


def states(store: Store) -> list[tuple[str, str, int, int]]:
    rows = store.alerts().rows
    return [(row["severity"], row["state"], row["since_step"], row["last_step"]) for row in rows]


def test_a_breach_is_one_row_from_its_beginning_to_its_end(open_store: Open, clock: Clock) -> None:
    store, _ = judged(open_store, {1: ("warning",), 2: ("warning",)})
    for step in range(4):
        clock.now = 1000.0 + step
        store.ingest([make_record(step)])
    assert states(store) == [("warning", "resolved", 1, 2)]
    [row] = store.alerts().rows
    assert (row["started_at"], row["active_at"], row["resolved_at"], row["run"]) == (1001.0, 1001.0, 1003.0, "r1")


def test_an_incomplete_step_is_not_judged_and_its_last_shard_has_it_judged_in_the_same_write(open_store: Open) -> None:
    store, _ = judged(open_store, {0: ("critical",)})
    [first] = store.ingest([make_record(0, 0, 2)])
    [second] = store.ingest([make_record(0, 1, 2)])
    assert isinstance(first, Receipt) and isinstance(second, Receipt)
    assert (first.verdict, first.alerts) == ("accept", ())
    assert second.verdict == "skip"
    assert [(alert["alert"], alert["severity"]) for alert in second.alerts] == [("Loud", "critical")]
    [again] = store.ingest([make_record(0, 1, 2)])
    assert isinstance(again, Receipt) and (again.duplicate, again.verdict) == (True, "skip")


def test_a_step_that_its_deadline_closes_is_judged(open_store: Open, clock: Clock) -> None:
    store, _ = judged(open_store, {0: ("warning",)})
    store.ingest([make_record(0, 0, 2, received_at=1000.0)])
    assert states(store) == []
    store.upkeep.sweep(now=2000.0, timeout=600.0)
    assert states(store) == [("warning", "active", 0, 0)]


def test_the_history_is_that_of_the_newest_attempt_and_follows_late_shards(open_store: Open) -> None:
    store, script = judged(open_store, {})
    store.ingest([make_record(step, tokens=100 + step) for step in range(6)])
    assert script.seen is not None and list(script.seen.steps) == [0, 1, 2, 3, 4, 5]
    store.ingest([make_record(3, attempt=1, tokens=7, policy_version=9)])
    assert list(script.seen.steps) == [0, 1, 2, 3]
    assert script.seen.columns["tokens"].tolist() == [100, 101, 102, 7]
    assert script.seen.columns["policy_version"][-1] == 9
    store.ingest([make_record(4, 0, 2, attempt=1, tokens=10)])
    store.upkeep.sweep(now=1e9, timeout=1.0)
    assert script.seen.columns["tokens"].tolist()[-1] == 10
    store.ingest([make_record(4, 1, 2, attempt=1, tokens=10)])
    assert script.seen.columns["tokens"].tolist()[-1] == 20


def test_a_long_history_is_its_beginning_and_its_newest_steps(open_store: Open) -> None:
    store, script = judged(open_store, {})
    for first in range(0, 400, 100):
        store.ingest([make_record(step) for step in range(first, first + 100)])
    assert script.seen is not None
    assert list(script.seen.steps) == [*range(26), *range(100, 400)]


def test_a_store_opened_again_reads_the_same_history(open_store: Open) -> None:
    store, script = judged(open_store, {})
    store.ingest([make_record(step) for step in range(5)])
    before = script.seen
    store.close()
    again, other = judged(open_store, {})
    again.ingest([make_record(5)])
    assert before is not None and other.seen is not None
    k3 = "gaps.mismatch.k3"
    assert other.seen.columns[k3][:5].tolist() == before.columns[k3].tolist()


def test_each_state_is_news_until_it_is_told_and_what_another_speaks_for_is_none(open_store: Open) -> None:
    later = {step: ("warning",) for step in range(1, CALM + 2)}
    store, _ = judged(open_store, {0: ("warning", "critical"), **later})
    store.ingest([make_record(0)])
    [critical] = store.untold(10)
    assert (critical["severity"], critical["state"], critical["run"]) == ("critical", "active", "r1")
    store.mark_told(critical["id"], "active")
    assert store.untold(10) == []
    store.ingest([make_record(1)])
    assert [(row["severity"], row["state"]) for row in store.untold(10)] == [("critical", "resolved")]
    store.mark_told(critical["id"], "resolved")
    for step in range(2, CALM + 2):
        assert store.untold(10) == []
        store.ingest([make_record(step)])
    [warning] = store.untold(10)
    assert (warning["severity"], warning["state"]) == ("warning", "active")


def test_what_was_told_before_another_spoke_for_it_is_told_as_over_and_goes_on_for_who_wants_repetitions(
    open_store: Open,
) -> None:
    store, _ = judged(open_store, {0: ("warning",), 1: ("warning", "critical"), 2: ("critical",)})
    store.ingest([make_record(0)])
    [warning] = store.untold(10)
    store.mark_told(warning["id"], "active")
    store.ingest([make_record(1)])
    assert [row["severity"] for row in store.untold(10)] == ["critical"]
    assert [(row["severity"], row["inhibited_by"]) for row in store.firing(0.0)] == [
        ("warning", "Loud"),
        ("critical", None),
    ]
    store.ingest([make_record(2)])
    assert {(row["severity"], row["state"]) for row in store.untold(10)} == {
        ("warning", "resolved"),
        ("critical", "active"),
    }


def test_the_root_names_its_evidence_wherever_it_is_read(open_store: Open) -> None:
    store = open_store(judge=RulesJudge())
    for step in range(4):
        [receipt] = store.ingest([make_record(step)])
    assert isinstance(receipt, Receipt)
    [root] = [row for row in store.alerts(states=("active",)).rows if row["inhibited_by"] is None]
    assert (root["alert"], root["severity"], root["evidence"]) == ("MismatchKL", "critical", ["RatioNotCalibrated"])
    for rows in (receipt.alerts, store.untold(50), store.firing(0.0)):
        assert {row["alert"]: row["evidence"] for row in rows if row["evidence"]}[root["alert"]] == root["evidence"]


def test_a_late_word_of_another_process_does_not_bring_back_what_was_told_as_over(open_store: Open) -> None:
    store, _ = judged(open_store, {0: ("critical",)})
    store.ingest([make_record(0)])
    [active] = store.untold(10)
    store.ingest([make_record(1)])
    store.mark_told(active["id"], "resolved")
    store.mark_told(active["id"], "active")
    assert store.untold(10) == []


def test_a_warning_that_was_muted_all_along_is_never_told(open_store: Open) -> None:
    store, _ = judged(open_store, {0: ("warning", "critical")})
    store.ingest([make_record(0)])
    store.mark_told(store.untold(10)[0]["id"], "active")
    store.ingest([make_record(1)])
    assert [(row["severity"], row["state"]) for row in store.untold(10)] == [("critical", "resolved")]


def test_what_was_over_a_day_ago_is_no_news(open_store: Open, clock: Clock) -> None:
    store, _ = judged(open_store, {0: ("warning",)})
    store.ingest([make_record(0)])
    store.ingest([make_record(1)])
    assert len(store.untold(10)) == 1
    clock.now += 90_000
    assert store.untold(10) == []
    assert (store.firing(resolved_since=999.0)[0]["state"], store.firing(resolved_since=1001.0)) == ("resolved", [])


def test_silence_is_told_by_the_clock_and_ends_with_the_next_batch(open_store: Open, clock: Clock) -> None:
    store, _ = judged(open_store, {})
    clock.now = 1100.0
    store.ingest([make_record(0, received_at=1000.0), make_record(1, received_at=1100.0)])
    clock.now = 1700.0
    assert store.upkeep.watch(expiry=86_400.0) == 0
    clock.now = 1701.0
    assert store.upkeep.watch(expiry=86_400.0) == 1
    assert store.upkeep.watch(expiry=86_400.0) == 0
    assert [row["alert"] for row in store.alerts(states=("active",)).rows] == ["RunSilent"]
    store.ingest([make_record(2, received_at=1701.0)])
    assert store.upkeep.watch(expiry=86_400.0) == 1
    assert [row["state"] for row in store.alerts().rows] == ["resolved"]


def test_a_step_that_stays_incomplete_is_told_by_the_clock(open_store: Open, clock: Clock) -> None:
    store, _ = judged(open_store, {})
    clock.now = 1050.0
    store.ingest([make_record(step, received_at=1000.0 + 10 * step) for step in range(5)])
    store.ingest([make_record(5, 0, 2, received_at=1050.0)])
    clock.now = 1105.0
    assert store.upkeep.watch(expiry=86_400.0) == 0
    clock.now = 1111.0
    assert store.upkeep.watch(expiry=86_400.0) == 1
    assert store.exported(10, 0.0)[0].open_since == 1050.0
    store.ingest([make_record(5, 1, 2, received_at=1111.0)])
    assert store.upkeep.watch(expiry=86_400.0) == 1
    assert [(row["alert"], row["state"]) for row in store.alerts().rows] == [("IncompleteStep", "resolved")]


def test_a_finished_run_and_one_that_has_left_have_no_alerts(open_store: Open, clock: Clock) -> None:
    store, _ = judged(open_store, {0: ("critical",)})
    store.ingest([make_record(0, run="done"), make_record(0, run="gone")])
    store.update_run("done", finished=True)
    assert [(row["run"], row["state"]) for row in store.alerts().rows] == [("gone", "active"), ("done", "resolved")]
    store.update_run("done", labels={"a": "b"})
    clock.now += 100_000
    assert store.upkeep.watch(expiry=86_400.0) == 1
    assert {row["state"] for row in store.alerts().rows} == {"resolved"}


def test_what_the_last_shard_of_a_finished_run_shows_is_over_at_once(open_store: Open) -> None:
    store, _ = judged(open_store, {0: ("critical",)})
    store.ingest([make_record(0, 0, 2)])
    store.update_run("r1", finished=True)
    [receipt] = store.ingest([make_record(0, 1, 2)])
    assert isinstance(receipt, Receipt) and (receipt.verdict, receipt.alerts) == ("accept", ())
    assert [(row["severity"], row["state"]) for row in store.alerts().rows] == [("critical", "resolved")]


def test_the_clock_advises_nothing_about_an_update(open_store: Open, clock: Clock) -> None:
    store, _ = judged(open_store, {})
    clock.now = 1100.0
    store.ingest([make_record(step, received_at=1000.0 + 100 * step) for step in range(2)])
    clock.now = 9000.0
    assert store.upkeep.watch(expiry=86_400.0) == 1
    assert {row["severity"] for row in store.alerts(states=("active",)).rows} == {"warning", "critical"}
    assert (store.run("r1")["state"], store.run("r1")["verdict"]) == ("silent", "accept")
    [receipt] = store.ingest([make_record(2, received_at=9000.0)])
    assert isinstance(receipt, Receipt) and receipt.verdict == "accept"


def test_a_deleted_run_takes_its_alerts_with_it(open_store: Open) -> None:
    store, _ = judged(open_store, {0: ("critical",)})
    store.ingest([make_record(0)])
    store.delete_run("r1")
    assert (store.alerts().rows, store.untold(10), store.firing(0.0)) == ([], [], [])


@pytest.mark.parametrize("steps", [1, 3])
def test_exported_rows_have_what_the_rules_said_and_how_fast_the_run_steps(
    open_store: Open, clock: Clock, steps: int
) -> None:
    store, _ = judged(open_store, {steps - 1: ("info",)})
    clock.now = 1000.0 + 30 * steps
    store.ingest([make_record(step, received_at=1000.0 + 30 * step) for step in range(steps)])
    [row] = store.exported(10, 0.0)
    assert [state["severity"] for state in row.states] == ["info"]
    assert (row.step_seconds, row.finished) == (30.0 if steps > 1 else None, False)


def test_a_training_step_is_judged_by_its_last_gradient_step_and_by_the_merge_of_all(open_store: Open) -> None:
    store, script = judged(open_store, {})
    for minibatch in range(3):
        store.ingest([shards.make_record(4, minibatch=minibatch, minibatches=3, tokens=100 * minibatch + 50)])
        assert (script.seen is None) == (minibatch < 2)
    assert script.seen is not None
    last = store.step("r1", 4)["gaps"]["mismatch"]["k3"]
    assert {path: values.tolist() for path, values in script.seen.columns.items() if path != "policy_version"} == {
        "tokens": [50 + 150 + 250],
        "gaps.mismatch.k3": [last],
    }


def test_a_store_opened_again_goes_on_waiting(open_store: Open, clock: Clock) -> None:
    store, _ = judged(open_store, {0: ("warning",)})
    store.ingest([shards.make_record(0, minibatches=2)])
    store.close()
    again, script = judged(open_store, {0: ("warning",)})
    assert again.upkeep.sweep(now=1599.0, timeout=600.0) == 0
    assert script.seen is None
    again.upkeep.sweep(now=1600.0, timeout=600.0)
    assert states(again) == [("warning", "active", 0, 0)]


def test_steps_that_nobody_completes_are_all_judged_when_their_time_is_up(open_store: Open) -> None:
    store, script = judged(open_store, {})
    store.ingest([shards.make_record(step, minibatches=2) for step in range(5 * MOST)])
    store.upkeep.sweep(now=9999.0, timeout=600.0)
    assert script.seen is not None and list(script.seen.steps) == list(range(5 * MOST))


def test_what_an_attempt_was_judged_by_counts_no_longer_once_another_has_begun_the_step(open_store: Open) -> None:
    store, script = judged(open_store, {})
    store.ingest([make_record(step, tokens=10 + step) for step in range(4)])
    store.ingest([shards.make_record(3, attempt=1, minibatches=2, tokens=7)])
    assert script.seen is not None and script.seen.columns["tokens"].tolist() == [10, 11, 12, 13]
    store.update_run("r1", profile="fp8")
    assert script.seen.columns["tokens"].tolist() == [10, 11, 12]
    store.ingest([shards.make_record(3, attempt=1, minibatch=1, minibatches=2, tokens=7)])
    assert script.seen.columns["tokens"].tolist() == [10, 11, 12, 14]


def test_a_late_shard_of_a_step_whose_other_summaries_are_gone_leaves_what_was_said_of_it(
    open_store: Open, database_url: str
) -> None:
    store, script = judged(open_store, {5: ("warning",)})
    store.ingest([shards.make_record(5, 0, 2, minibatch=minibatch, minibatches=2) for minibatch in range(2)])
    store.ingest([shards.make_record(5, 1, 2, minibatch=0, minibatches=2)])
    store.upkeep.sweep(now=9999.0, timeout=600.0)
    seen = script.seen
    assert seen is not None and states(store) == [("warning", "active", 5, 5)]
    with closing(Database(parse_url(database_url))) as database, database.writing() as connection:
        connection.execute(text("UPDATE steps SET summary = NULL, block = 7 WHERE minibatch = 0"))
        connection.execute(text("UPDATE shards SET summary = :none WHERE minibatch = 0"), {"none": b""})
    [receipt] = store.ingest([shards.make_record(5, 1, 2, minibatch=1, minibatches=2)])
    assert isinstance(receipt, Receipt) and receipt.complete
    assert script.seen is seen
    assert states(store) == [("warning", "active", 5, 5)]


def test_what_is_remembered_of_alerts_is_what_is_stored_and_is_asked_only_where_some_are_new(
    open_store: Open, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[list[dict[str, Any]] | None] = []

    def saved(connection: Connection, run: int, *episodes: Any) -> list[dict[str, Any]] | None:
        found = alerts.save(connection, run, *episodes)
        said.append(found)
        assert found in (None, alerts.open_alerts(connection, [run])[run])
        return found

    monkeypatch.setattr(judge, "save", saved)
    both, one = ("warning", "critical"), ("warning",)
    store, _ = judged(open_store, {1: both, 2: both, 3: one, 4: both, 5: both, 7: one})
    worst = {**{step: ["critical"] for step in (1, 2, 4, 5)}, 3: ["warning"], 7: ["warning"]}
    for step in range(9):
        clock.now = 1000.0 + step
        [receipt] = store.ingest([make_record(step)])
        assert isinstance(receipt, Receipt)
        assert [row["severity"] for row in receipt.alerts] == worst.get(step, [])
    assert [found is None for found in said] == [step in (1, 4, 7) for step in range(9)]
    assert states(store)[0] == ("warning", "resolved", 7, 7)
