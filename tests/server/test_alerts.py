"""GET /v1/alerts over posted shards."""

import numpy as np
import pytest

from tests.fixtures.application import JSON, SAFETENSORS, Client, frame_bytes


def post(client: Client, step: int, gap: float, run: str = "a") -> None:
    """One step whose every token has this log-ratio, and its opposite as often: k3 of gap^2 / 2."""
    mu = np.full(2000, -1.0, np.float32)
    old = (mu + gap * np.tile([1, -1], 1000)).astype(np.float32)
    sent = {"lengths": np.full(20, 100), "sampling_logprobs": mu, "old_logprobs": old}
    response = client.post(f"/v1/runs/{run}/batches", content=frame_bytes({"step": step}, sent), headers=SAFETENSORS)
    assert response.status_code == 200, response.text


def alerts(client: Client, query: str = "") -> list[dict[str, object]]:
    response = client.get(f"/v1/alerts{query}")
    assert response.status_code == 200, response.text
    found: list[dict[str, object]] = response.json()["alerts"]
    return found


def test_a_run_that_drifts_is_pending_then_active_and_a_healthy_one_is_not_named(client: Client) -> None:
    for step in range(7, 10):
        post(client, step, 0.01)
        post(client, step, 0.01, run="healthy")
    assert alerts(client) == []
    post(client, 10, 0.08)
    [pending] = alerts(client, "?run=a")[:1]
    assert (pending["alert"], pending["state"], pending["breach_steps"]) == ("MismatchKL", "pending", 1)
    for step in range(11, 15):
        post(client, step, 0.08)
    found = alerts(client, "?state=active")
    assert {alert["run"] for alert in found} == {"a"}
    mismatch = next(alert for alert in found if alert["alert"] == "MismatchKL")
    assert mismatch["value"] == pytest.approx(0.0032, rel=0.01)
    assert {name: mismatch[name] for name in ("severity", "since_step", "last_step", "breach_steps", "threshold")} == {
        "severity": "warning",
        "since_step": 10,
        "last_step": 14,
        "breach_steps": 5,
        "threshold": 0.002,
    }


def test_thresholds_are_those_of_the_runs_profile(client: Client) -> None:
    for step in range(5):
        post(client, step, 0.08)
    assert "MismatchKL" in {alert["alert"] for alert in alerts(client)}
    assert client.request("PATCH", "/v1/runs/a", content=b'{"profile": "fp4"}', headers=JSON).status_code == 200
    assert "MismatchKL" not in {alert["alert"] for alert in alerts(client)}


def test_a_breach_that_ended_is_no_longer_told(client: Client) -> None:
    for step in range(6):
        post(client, step, 0.08)
    post(client, 6, 0.01)
    assert "MismatchKL" not in {alert["alert"] for alert in alerts(client, "?run=a")}


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
    assert "RoutingAgreement" not in {alert["alert"] for alert in alerts(client, "?run=moe")}
    for step in range(35, 40):
        post_experts(client, step, 86)
    found = {alert["alert"]: alert for alert in alerts(client, "?run=moe&state=active")}
    routing = found["RoutingAgreement"]
    assert (routing["severity"], routing["since_step"], routing["breach_steps"]) == ("warning", 35, 5)
    assert routing["value"] == pytest.approx(0.04)
