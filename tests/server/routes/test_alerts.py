"""GET /v1/alerts over posted shards."""

import json
from typing import Any

import numpy as np
import pytest
from httpx import Response
from offpolicy_monitor.alerts.episodes import CALM

from tests.fixtures.application import JSON, SAFETENSORS, Application, Client, frame_bytes


def post(client: Client, step: int, gap: float, run: str = "a") -> dict[str, Any]:
    """One step whose every token has this log-ratio, and its opposite as often: k3 of gap^2 / 2. The answer."""
    mu = np.full(2000, -1.0, np.float32)
    old = (mu + gap * np.tile([1, -1], 1000)).astype(np.float32)
    sent = {"lengths": np.full(20, 100), "sampling_logprobs": mu, "old_logprobs": old}
    response = client.post(f"/v1/runs/{run}/batches", content=frame_bytes({"step": step}, sent), headers=SAFETENSORS)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def alerts(client: Client, query: str = "") -> list[dict[str, Any]]:
    response = client.get(f"/v1/alerts{query}")
    assert response.status_code == 200, response.text
    found: list[dict[str, Any]] = response.json()["alerts"]
    return found


def patch(client: Client, run: str = "a", **changes: object) -> Response:
    return client.request("PATCH", f"/v1/runs/{run}", content=json.dumps(changes), headers=JSON)


def named(found: list[dict[str, Any]], rule: str, severity: str = "warning") -> dict[str, Any]:
    return next(alert for alert in found if (alert["alert"], alert["severity"]) == (rule, severity))


def names(client: Client, query: str = "?state=active") -> set[object]:
    return {alert["alert"] for alert in alerts(client, query)}


def test_a_run_that_drifts_is_pending_then_active_then_resolved_and_a_healthy_one_is_not_named(client: Client) -> None:
    for step in range(7, 10):
        post(client, step, 0.01)
        post(client, step, 0.01, run="healthy")
    assert alerts(client) == []
    post(client, 10, 0.16)
    pending = named(alerts(client, "?run=a&state=pending"), "MismatchKL")
    assert (pending["since_step"], pending["breach_steps"], pending["active_at"]) == (10, 1, None)
    for step in range(11, 15):
        post(client, step, 0.16)
    assert {alert["run"] for alert in alerts(client)} == {"a"}
    active = named(alerts(client, "?state=active"), "MismatchKL")
    assert active["value"] == pytest.approx(0.0129, rel=0.03)
    assert {
        name: active[name] for name in ("id", "since_step", "last_step", "breach_steps", "threshold", "runbook")
    } == {
        "id": pending["id"],
        "since_step": 10,
        "last_step": 14,
        "breach_steps": 5,
        "threshold": 0.01,
        "runbook": "http://127.0.0.1:8900/runbook#MismatchKL",
    }
    for step in range(15, 18):
        post(client, step, 0.01)
    assert "MismatchKL" not in names(client)
    resolved = named(alerts(client, "?state=resolved"), "MismatchKL")
    assert (resolved["id"], resolved["last_step"]) == (pending["id"], 16)
    assert (pending["active_step"], active["active_step"], active["resolved_step"]) == (None, 14, None)
    assert (resolved["active_step"], resolved["resolved_step"]) == (14, 17)
    assert resolved["value"] < resolved["threshold"] < pending["peak"] <= resolved["peak"] == active["peak"]
    assert resolved["started_at"] <= resolved["active_at"] <= resolved["resolved_at"]


def test_thresholds_are_those_of_the_runs_profile_and_a_change_of_it_counts_at_once(client: Client) -> None:
    for step in range(5):
        post(client, step, 0.16)
    assert "MismatchKL" in names(client)
    assert patch(client, profile="fp4").status_code == 200
    assert "MismatchKL" not in names(client)


def test_a_run_may_have_its_own_thresholds_which_it_shows(client: Client) -> None:
    for step in range(5):
        post(client, step, 0.16)
    own = {"MismatchKL": {"warning": 0.05, "critical": 0.05}, "ProbabilityDiff": {"enabled": False}}
    answer = patch(client, alerts=own)
    assert (answer.status_code, answer.json()["alerts"]) == (200, own)
    assert names(client) & {"MismatchKL", "ProbabilityDiff"} == set()
    assert patch(client, alerts={}).json()["alerts"] == {}
    assert {"MismatchKL", "ProbabilityDiff"} <= names(client)


@pytest.mark.parametrize(
    ("alerts_", "field"),
    [
        ({"Nothing": {}}, "alerts.Nothing"),
        ({"MismatchKL": {"info": 1.0}}, "alerts.MismatchKL.info"),
        ({"MismatchKL": {"steps": 0}}, "alerts.MismatchKL.steps"),
        ({"MismatchKL": {"warning": "high"}}, "alerts.MismatchKL.warning"),
        ({"MismatchKL": {"wanring": 1.0}}, "alerts.MismatchKL.wanring"),
    ],
)
def test_a_threshold_that_means_nothing_is_refused_and_changes_nothing(
    client: Client, alerts_: dict[str, Any], field: str
) -> None:
    post(client, 0, 0.01)
    answer = patch(client, alerts=alerts_)
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, field)
    assert client.get("/v1/runs/a").json()["alerts"] == {}


def test_the_verdict_follows_from_the_alerts_and_each_batch_is_told(client: Client) -> None:
    said = [post(client, step, 0.26)["verdict"] for step in range(4)]
    assert said == ["accept", "accept", "skip", "skip"]
    told = post(client, 4, 0.26)["alerts"]
    assert [(alert["severity"], alert["state"]) for alert in told if alert["alert"] == "MismatchKL"] == [
        ("critical", "active")
    ]
    assert client.get("/v1/runs").json()["runs"][0]["verdict"] == "skip"
    assert [post(client, step, 0.01)["verdict"] for step in range(5, 8)] == ["skip", "skip", "accept"]
    patch(client, alerts={"ProbabilityDiff": {"critical": None}})
    warned = [post(client, step, 0.07)["verdict"] for step in range(8, 14)]
    assert warned == ["accept"] * 4 + ["warn"] * 2


def test_a_restart_forgets_no_breach_and_begins_none_twice(application: Application) -> None:
    with application() as client:
        for step in range(4):
            post(client, step, 0.16)
        before = alerts(client, "?state=pending")
        scraped = breach_steps(client)
    with application() as client:
        assert alerts(client) == before
        assert breach_steps(client) == scraped
        post(client, 4, 0.16)
        found = alerts(client, "?state=active")
        assert {alert["id"] for alert in found} <= {alert["id"] for alert in before}
        assert named(found, "MismatchKL")["breach_steps"] == 5


def breach_steps(client: Client) -> list[str]:
    text = client.get("/metrics").text
    return [line for line in text.splitlines() if line.startswith("offpolicy_alert_breach_steps{")]


def test_metrics_show_each_rule_that_has_its_figures(client: Client) -> None:
    for step in range(3):
        post(client, step, 0.16)
    text = client.get("/metrics").text
    warning = '{alert="MismatchKL",run="a",severity="warning"}'
    for line in (
        f"offpolicy_alert_breach_steps{warning} 3.0",
        f"offpolicy_alert_active{warning} 0.0",
        f"offpolicy_alert_threshold{warning} 0.01",
        'offpolicy_alert_breach_steps{alert="MismatchKL",run="a",severity="critical"} 0.0',
        'offpolicy_run_finished{run="a"} 0.0',
    ):
        assert f"{line}\n" in text
    # No advantages were sent, so nothing is known about bad updates: that is not the same as none.
    assert 'alert="BadUpdates"' not in text
    assert "offpolicy_step_seconds_median" in text and "offpolicy_open_step_timestamp_seconds{" not in text


def test_every_rule_says_where_it_stands_and_a_silent_one_what_it_lacks(client: Client) -> None:
    for step in range(2):
        post(client, step, 0.16)
    answer = client.get("/v1/runs/a/rules").json()
    states = {(rule["alert"], rule["severity"]): rule for rule in answer["rules"]}
    assert answer["step"] == 1
    assert states["MismatchKL", "warning"]["state"] == "pending"
    assert states["MismatchKL", "warning"]["breach_steps"] == 2
    bad = states["BadUpdates", "critical"]
    assert (bad["state"], bad["missing"]) == ("silent", ["gaps.total.bad_update_fraction"])
    assert states["StaleData", "warning"]["missing"] == ["policy_lag.max"]
    assert client.get("/v1/runs/nobody/rules").status_code == 404


def test_a_run_that_is_finished_has_no_alerts_until_it_goes_on(client: Client) -> None:
    for step in range(5):
        post(client, step, 0.16)
    assert patch(client, finished=True).json()["state"] == "finished"
    assert (names(client), names(client, "?state=pending")) == (set(), set())
    assert client.get("/v1/runs/a").json()["verdict"] == "accept"
    assert 'offpolicy_run_finished{run="a"} 1.0\n' in client.get("/metrics").text
    post(client, 5, 0.16)
    assert "MismatchKL" in names(client)


def test_a_rule_that_asks_for_growth_says_from_where_on_its_figure_is_critical_alone(client: Client) -> None:
    def critical() -> dict[str, Any]:
        return named(client.get("/v1/runs/a/rules").json()["rules"], "MismatchKL", "critical")

    for step in range(2):
        post(client, step, 0.16)
    assert (critical()["threshold"], critical()["alone"]) == (0.01, 0.03)
    assert patch(client, profile="moe_bf16").json()["spark"]["limit"] == 0.015
    assert (critical()["threshold"], critical()["alone"]) == (0.015, 0.045)
    assert patch(client, alerts={"MismatchKL": {"critical": 0.02}}).status_code == 200
    assert (critical()["threshold"], critical()["alone"]) == (0.02, None)
    warning = named(client.get("/v1/runs/a/rules").json()["rules"], "MismatchKL")
    assert warning.get("alone") is None


def test_answers_at_the_length_cap_that_a_run_names_are_truncated(client: Client) -> None:
    """Twenty answers of 100 tokens, step by step."""

    def truncation() -> dict[str, Any]:
        return named(client.get("/v1/runs/a/rules").json()["rules"], "Truncation", "critical")

    for step in range(7):
        post(client, step, 0.01)
    assert (truncation()["state"], truncation()["value"]) == ("quiet", 0.0)
    assert patch(client, length_cap=100).json()["length_cap"] == 100
    assert (truncation()["state"], truncation()["value"]) == ("active", 1.0)
    assert patch(client, length_cap=101).status_code == 200
    assert truncation()["state"] == "quiet"
    assert patch(client, length_cap=0).json()["errors"][0]["field"] == "length_cap"
    assert patch(client, length_cap=None).json()["length_cap"] is None


def test_rules_on_masks_look_at_the_correction_that_the_run_names(client: Client) -> None:
    refused = patch_of_unknown_correction(client)
    assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, "correction")
    assert patch(client, correction="geometric_mask").json()["correction"] == "geometric_mask"
    for step in range(1, 6):
        post(client, step, 0.5)
    rules = {rule["alert"]: rule for rule in client.get("/v1/runs/a/rules").json()["rules"]}
    assert rules["MaskRate"]["state"] != "silent"


def patch_of_unknown_correction(client: Client) -> Response:
    post(client, 0, 0.5)
    return patch(client, correction="nothing")


def without_messages(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What stands still between two requests: a message says more once the diagnosis beside it is done."""
    return [{name: value for name, value in alert.items() if name != "message"} for alert in found]


def test_alerts_come_in_pages_the_newest_first(client: Client) -> None:
    for step in range(5):
        post(client, step, 0.16)
    whole = client.get("/v1/alerts").json()
    first = client.get("/v1/alerts?limit=2").json()
    rest = client.get(f"/v1/alerts?limit=1000&cursor={first['next_cursor']}").json()
    assert without_messages(first["alerts"] + rest["alerts"]) == without_messages(whole["alerts"])
    ids = [alert["id"] for alert in whole["alerts"]]
    assert ids == sorted(ids, reverse=True)


def test_breaches_that_are_joined_have_the_worst_value_of_all_and_became_active_with_the_first(client: Client) -> None:
    calm = [0.01] * (3 + CALM)
    for step, apart in enumerate([0.16, 0.17, *[0.16] * 3, *calm, *[0.16] * 5, *calm]):
        post(client, step, apart)
    every = [alert for alert in alerts(client, "?state=resolved") if alert["alert"] == "MismatchKL"]
    later, earlier = [alert for alert in every if alert["severity"] == "warning"]
    joined = next(a for a in alerts(client, "?merge=20&state=resolved") if a["id"] == later["id"])
    assert joined["joined"] == 2
    assert joined["peak"] == max(earlier["peak"], later["peak"]) > later["peak"]
    assert (joined["active_step"], joined["resolved_step"]) == (earlier["active_step"], later["resolved_step"])


@pytest.mark.parametrize(
    ("query", "status"), [("?run=nobody", 404), ("?run=a/b", 422), ("?state=x", 422), ("?rum=a", 422)]
)
def test_what_cannot_be_answered_is_refused(client: Client, query: str, status: int) -> None:
    assert client.get(f"/v1/alerts{query}").status_code == status


def post_experts(client: Client, step: int, agreeing: int) -> None:
    """One step of 100 tokens and one layer, of which so many choose the same expert on both sides."""
    mu = np.full(100, -1.0, np.float32)
    experts = np.zeros((100, 1, 1), np.uint8)
    other = experts.copy()
    other[agreeing:] = 1
    sent = {"lengths": np.array([100]), "sampling_logprobs": mu, "old_logprobs": mu - np.float32(0.001)}
    sent |= {"sampling_experts": experts, "old_experts": other}
    content = frame_bytes({"step": step}, sent)
    assert client.post("/v1/runs/moe/batches", content=content, headers=SAFETENSORS).status_code == 200


def test_routing_that_agrees_three_points_less_than_when_the_run_began_is_an_alert(client: Client) -> None:
    for step in range(30):
        post_experts(client, step, 90)
    for step in range(30, 35):
        post_experts(client, step, 88)
    assert "RoutingAgreement" not in names(client, "?run=moe")
    for step in range(35, 40):
        post_experts(client, step, 86)
    found = {alert["alert"]: alert for alert in alerts(client, "?run=moe&state=active")}
    routing = found["RoutingAgreement"]
    assert (routing["severity"], routing["since_step"], routing["breach_steps"]) == ("warning", 35, 5)
    assert routing["value"] == pytest.approx(0.04)


def test_alerts_of_all_runs_say_what_those_of_each_run_say(client: Client) -> None:
    for run in ("a", "b"):
        for step in range(6):
            post(client, step, 0.6, run)
    of_each = {run: [row["message"] for row in alerts(client, f"?run={run}")] for run in ("a", "b")}
    together = alerts(client)
    assert {run: [row["message"] for row in together if row["run"] == run] for run in ("a", "b")} == of_each
    assert all(any(messages) for messages in of_each.values())
