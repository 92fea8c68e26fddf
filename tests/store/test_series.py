"""Several figures in one question, per gradient step or per step, and the columns of steps that are no figures."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from offpolicy_monitor.alerts import Rule
from offpolicy_monitor.alerts.comparisons import figure
from offpolicy_monitor.errors import Refusal
from offpolicy_monitor.server.judge import RulesJudge
from offpolicy_monitor.store import Store

from tests.fixtures.shards import make_record
from tests.fixtures.stores import Clock

Open = Callable[..., Store]
K3, K2 = "gaps.mismatch.k3", "gaps.mismatch.k2"
#: Warned of above 150 tokens after two steps, critical above 250 at once.
LOUD = Rule(
    "Loud", "A test", ("tokens",), figure("tokens"), "tokens", {"warning": 150, "critical": 250},
    {"warning": 2, "critical": 1}, "test",
)  # fmt: skip
whole_step = partial(make_record, minibatches=1)


def values(store: Store, fields: list[str], **options: Any) -> list[list[Any]]:
    return [found["value"] for found in store.all_series("r1", fields, **options)]


def test_several_figures_are_each_what_it_is_alone(store: Store) -> None:
    store.ingest([make_record(step, minibatch=part, tokens=90 + step) for step in range(5) for part in (0, 1)])
    fields = [K3, "tokens", K2, "gaps.staleness.k3", "methods.opsm.delta", K3]
    assert store.all_series("r1", fields) == [store.series("r1", field) for field in fields]


def test_by_step_is_the_last_gradient_step_of_each(store: Store) -> None:
    store.ingest([make_record(step, minibatch=part, tokens=10 * step + part) for step in (1, 2) for part in (0, 1, 2)])
    for field in ("tokens", "policy_lag.max", K2):
        series = store.series("r1", field, by="step")
        assert (series["step"], series["minibatch"]) == ([1, 2], [2, 2])
    assert store.series("r1", "tokens", by="step")["value"] == [12.0, 22.0]
    assert len(store.series("r1", "tokens")["value"]) == 6


def test_figures_that_are_kept_narrow_have_one_x_also_when_thinned(store: Store) -> None:
    odd = {3: 5, 17: 900}
    store.ingest([make_record(step, tokens=odd.get(step, 100)) for step in range(40)])
    tokens, k3, k1 = store.all_series("r1", ["tokens", K3, "gaps.mismatch.k1"], points=12)
    assert tokens["step"] == k3["step"] == k1["step"]
    assert len(tokens["step"]) <= 12
    assert {0, 3, 17, 39} <= set(tokens["step"])
    for found, whole in zip((tokens, k3, k1), values(store, ["tokens", K3, "gaps.mismatch.k1"]), strict=True):
        assert (min(found["value"]), max(found["value"])) == (min(whole), max(whole))
        assert found["value"] == [whole[step] for step in found["step"]]


def test_steps_before_and_after_a_method_was_chosen_share_one_x(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.ingest([make_record(1), make_record(2)])
    store.update_run("r1", correction="opsm")
    store.ingest([make_record(3)])
    masked, tokens = values(store, ["correction.masked_token_fraction", "tokens"])
    assert [value is None for value in masked] == [True, True, False]
    assert None not in tokens


def test_columns_of_steps_tell_version_attempt_and_time(store: Store) -> None:
    store.ingest([make_record(1, policy_version=2**60 + 1, received_at=1000.0), make_record(2, received_at=1002.5)])
    store.ingest([make_record(2, attempt=1, policy_version=7, received_at=1010.0)])
    version, attempt, when = values(store, ["policy_version", "attempt", "received_at"])
    assert (version, attempt) == ([2**60 + 1, 7], [0, 1])
    assert when == ["1970-01-01T00:16:40.000Z", "1970-01-01T00:16:50.000Z"]


def test_where_version_and_attempt_change_is_not_thinned_away(store: Store) -> None:
    store.ingest([make_record(step, policy_version=0 if step != 23 else 9) for step in range(60)])
    [version, when] = store.all_series("r1", ["policy_version", "received_at"], points=8)
    assert (23 in version["step"], 9 in version["value"]) == (True, True)
    assert version["step"] == when["step"]
    assert len(store.series("r1", "received_at", points=10)["value"]) == 10


def loud(open_store: Open) -> Store:
    return open_store(judge=RulesJudge([LOUD]))


def test_a_verdict_is_of_the_step_at_which_a_breach_had_lasted_long_enough(open_store: Open, clock: Clock) -> None:
    store = loud(open_store)
    for step, tokens in enumerate([100, 200, 200, 200, 100, 200, 300, 300, 100]):
        clock.now += 1
        store.ingest([whole_step(step, tokens=tokens, received_at=clock.now)])
    # The warning comes back within ten steps: it is one breach, with the steps between.
    assert store.series("r1", "verdict")["value"] == [
        *("accept", "accept", "warn", "warn", "warn", "warn", "skip", "skip", "accept")
    ]
    assert store.series("r1", "verdict", first=3, last=6)["value"] == ["warn", "warn", "warn", "skip"]
    rows = store.steps("r1").rows
    assert [row["verdict"] for row in rows] == store.series("r1", "verdict")["value"]
    assert [row["received_at"] for row in rows] == store.series("r1", "received_at")["value"]
    assert {row["verdict"]: [alert["severity"] for alert in row["alerts"]] for row in rows} == {
        "accept": [], "warn": ["warning"], "skip": ["warning", "critical"],
    }  # fmt: skip
    assert store.step("r1", 6)["verdict"] == "skip"


def test_a_verdict_is_of_all_gradient_steps_of_a_step(open_store: Open) -> None:
    store = loud(open_store)
    store.ingest([make_record(step, minibatch=part, minibatches=2, tokens=300) for step in (1, 2) for part in (0, 1)])
    assert store.series("r1", "verdict")["value"] == ["skip"] * 4
    assert store.series("r1", "verdict", by="step")["value"] == ["skip"] * 2


def test_a_step_that_is_not_judged_yet_has_no_verdict(open_store: Open) -> None:
    store = loud(open_store)
    store.ingest([make_record(1, minibatch=0, minibatches=2)])
    assert store.series("r1", "verdict")["value"] == [None]
    assert (store.step("r1", 1)["verdict"], store.step("r1", 1)["alerts"]) == (None, None)
    store.ingest([make_record(1, minibatch=1, minibatches=2)])
    assert store.series("r1", "verdict")["value"] == ["accept", "accept"]


def test_a_breach_that_an_attempt_has_left_behind_is_not_of_the_steps_that_replace_it(
    open_store: Open, clock: Clock
) -> None:
    store = loud(open_store)
    for attempt, tokens in ((0, 300), (1, 100)):
        for step in range(1, 5):
            clock.now += 1
            store.ingest([whole_step(step, attempt=attempt, tokens=tokens, received_at=clock.now - 0.5)])
        assert store.series("r1", "verdict")["value"] == ["accept" if attempt else "skip"] * 4


def test_of_a_figure_that_is_none_all_are_refused(store: Store) -> None:
    store.ingest([make_record(1)])
    with pytest.raises(Refusal) as caught:
        store.all_series("r1", ["tokens", "gaps.mismatch.k9"])
    assert (caught.value.status, [error.field for error in caught.value.errors]) == (422, ["field"])
    assert "gaps.mismatch.k9" in caught.value.detail
