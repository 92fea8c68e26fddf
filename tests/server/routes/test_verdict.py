"""GET /v1/runs/{run}/verdict over runs that were really posted: its parts are those of the figures and the alerts."""

import json
from typing import Any

import numpy as np
import pytest
from offpolicy_monitor.store import Store
from offpolicy_monitor.verdict.numbers import number

from tests.fixtures.application import JSON, Client

SEQUENCES, LENGTH = 16, 40


def batch(step: int, mode: str = "healthy", **fields: Any) -> bytes:
    """A step of 640 tokens: noise of 0.005 nats between engine and trainer, and what the mode adds to it."""
    source = np.random.default_rng(step)
    old = -source.exponential(0.8, SEQUENCES * LENGTH) - 0.01
    sampling = old + source.normal(0, 0.005, old.shape)
    current = old + source.normal(0, 0.05, old.shape)
    if mode == "still":
        current = old + source.normal(0, 0.01, old.shape)
    if mode == "top_p":
        sampling = np.minimum(sampling - np.log(0.8), 0.0)
    if mode == "stale":
        current = old + source.normal(0, 1.0, old.shape)
    columns: dict[str, Any] = {
        "sampling_logprobs": sampling.tolist(),
        "old_logprobs": old.tolist(),
        "logprobs": np.minimum(current, 0).tolist(),
        "lengths": [LENGTH] * SEQUENCES,
        "advantages": source.choice([-1.0, 1.0], SEQUENCES).tolist(),
        "minibatches": 1,
    }
    if mode == "nan":
        columns["sampling_logprobs"][:64] = [None] * 64
    kept = {name: value for name, value in {**columns, **fields}.items() if value != "left out"}
    return json.dumps({"step": step, **kept}).encode()


def post(client: Client, run: str, *modes: str, **fields: Any) -> None:
    for step, mode in enumerate(modes):
        post_step(client, run, step, mode, **fields)


def post_step(client: Client, run: str, step: int, mode: str, **fields: Any) -> None:
    answer = client.post(f"/v1/runs/{run}/batches?detail=none", content=batch(step, mode, **fields), headers=JSON)
    assert answer.status_code == 200, answer.text


def verdict(client: Client, run: str = "r1") -> dict[str, Any]:
    answer = client.get(f"/v1/runs/{run}/verdict")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    assert found["sentence"] == f"{found['head']} {found['why']}".rstrip()
    return found


def test_summaries_are_read_once_of_what_is_stored_however_many_ask(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[str] = []
    summaries = Store.summaries

    def read(store: Store, run: str, *more: Any, **named: Any) -> Any:
        reads.append(run)
        return summaries(store, run, *more, **named)

    monkeypatch.setattr(Store, "summaries", read)
    post(client, "r1", *["top_p"] * 8)

    assert verdict(client) == verdict(client)
    assert len(reads) == 1

    post_step(client, "r1", 8, "top_p")
    verdict(client)
    assert len(reads) == 2

    client.request("PATCH", "/v1/runs/r1", content=b'{"correction": "icepop"}', headers=JSON)
    assert verdict(client) == verdict(client)
    assert len(reads) == 3


def test_a_run_that_is_not_there_has_none(client: Client) -> None:
    assert client.get("/v1/runs/r1/verdict").status_code == 404


def test_a_healthy_run(client: Client) -> None:
    post(client, "r1", *["healthy"] * 3)
    assert verdict(client)["head"] == "Too early to judge: 3 steps so far."
    post(client, "r1", *["healthy"] * 8)
    client.request("PATCH", "/v1/runs/r1", content=b'{"correction": "icepop"}', headers=JSON)
    found = verdict(client)
    k3 = client.get("/v1/runs/r1/series?field=gaps.mismatch.k3").json()["value"]
    assert found["head"].startswith("Healthy at step 7. Mismatch is ")
    assert f"Mismatch k3 is {number(float(np.median(k3)))} nats per token" in found["why"]
    assert found["action"].startswith(
        "Nothing. icepop, the correction in use, masks 0% of the tokens. OPSM at 0.01 would"
    )
    assert (found["verdict"], found["state"], found["half"]) == ("accept", "healthy", None)


def test_a_run_whose_engine_renormalises(client: Client) -> None:
    post(client, "r1", *["healthy"] * 30, *["top_p"] * 9)
    found = verdict(client)
    assert (found["verdict"], found["state"], found["half"]) == ("skip", "drifting", "mismatch")
    alerts = client.get("/v1/alerts?run=r1&state=active").json()["alerts"]
    halves = {"MaskRate", "CollapseRisk", "DataQuality", "TotalOffPolicy", "LengthBias", "SecondMoment"}
    critical = [a["since_step"] for a in alerts if a["severity"] == "critical" and a["alert"] not in halves]
    assert found["since_step"] == min(critical) == 30
    best = client.get("/v1/runs/r1/diagnosis").json()["hypotheses"][0]
    assert (found["cause"], found["score"]) == (best["name"], best["score"])
    assert best["title"] in found["head"] and f"(score {number(best['score'])})" in found["head"]
    assert found["action"].startswith(" ".join(best["try"][:2]))
    presets = client.get("/v1/runs/r1/recommendations").json()["presets"]
    opsm = next(row["masked_token_fraction"] for row in presets if row["name"] == "opsm")
    assert f"OPSM at 0.01 would mask {round(opsm * 100)}%" in found["action"]


def test_the_alert_that_speaks_for_a_half_says_all_that_is_needed_to_act_and_the_others_name_it(client: Client) -> None:
    post(client, "r1", *["healthy"] * 30, *["top_p"] * 9)
    alerts = client.get("/v1/alerts?run=r1&state=active").json()["alerts"]
    [root] = [row for row in alerts if row["half"] == "mismatch" and row["inhibited_by"] is None]
    others = {row["alert"] for row in alerts if row["half"] == "mismatch"} - {root["alert"]}
    assert len(others) >= 4 and others <= set(root["evidence"])
    assert {row["inhibited_by"] for row in alerts if row["alert"] in root["evidence"]} == {root["alert"]}
    inhibited = {row["id"] for row in alerts if row["inhibited_by"] is not None}
    found = verdict(client)
    best = client.get("/v1/runs/r1/diagnosis").json()["hypotheses"][0]
    assert root["message"].startswith(f"Verdict: {found['verdict']}. Drifting since step {found['since_step']}: ")
    for part in (
        f"{best['title']} (score {number(best['score'])})",
        "Do: " + " ".join(best["try"][:2]),
        root["evidence"][0],
    ):
        assert part in root["message"]
    assert root["message"].endswith(f"/runs/r1?step={root['since_step']}")
    assert all("Verdict" not in row["message"] for row in alerts if row["inhibited_by"] is not None)
    states = {(row["alert"], row["severity"]): row for row in client.get("/v1/runs/r1/rules").json()["rules"]}
    assert states[root["alert"], root["severity"]]["root"] is True
    assert sum("root" in state for state in states.values()) == len({row["id"] for row in alerts} - inhibited)
    [of_all] = [row for row in client.get("/v1/alerts?state=active").json()["alerts"] if row["id"] == root["id"]]
    assert best["title"] in of_all["message"]


def test_an_alert_on_staleness_says_what_staleness_comes_to(client: Client) -> None:
    post(client, "r1", *["healthy"] * 8, *["stale"] * 6)
    alerts = client.get("/v1/alerts?run=r1&state=active").json()["alerts"]
    [root] = [row for row in alerts if row["half"] == "total" and row["inhibited_by"] is None]
    assert "nearly all of the gap is staleness." in root["message"]
    assert "Do: Lower the learning rate, or take fewer gradient steps" in root["message"]


def test_a_run_whose_policy_moved_away(client: Client) -> None:
    post(client, "r1", *["healthy"] * 8, *["stale"] * 6)
    found = verdict(client)
    assert (found["state"], found["half"], found["cause"]) == ("drifting", "staleness", None)
    assert found["head"] == f"Drifting since step {found['since_step']}: nearly all of the gap is staleness."
    assert found["since_step"] == 8
    assert "The engine is not to blame: mismatch k3 is" in found["why"]


def test_a_run_whose_data_is_wrong(client: Client) -> None:
    post(client, "r1", *["healthy"] * 8, *["nan"] * 2)
    found = verdict(client)
    assert found["head"] == "Data wrong since step 8: 10% of the tokens have log-probs that are not finite."
    assert (found["verdict"], found["half"], found["since_step"]) == ("skip", "data", 8)


def test_a_run_without_old_logprobs(client: Client) -> None:
    post(client, "r1", *["still"] * 8, old_logprobs="left out")
    found = verdict(client)
    assert found["head"] == "Healthy at step 7, as far as can be told without old_logprobs."
    post(client, "r2", *["still"] * 6, *["stale"] * 6, old_logprobs="left out")
    found = verdict(client, "r2")
    assert (found["state"], found["half"], found["since_step"]) == ("off_policy", None, 6)
    active = client.get("/v1/alerts?run=r2&state=active").json()["alerts"]
    [root] = [row for row in active if row["half"] in ("mismatch", "total") and row["inhibited_by"] is None]
    assert root["message"].startswith(f"Verdict: {found['verdict']}. {found['head']} ")
    assert "Do: Send old_logprobs" in root["message"]


def test_without_old_logprobs_a_policy_that_moves_is_no_fault_of_the_engine(client: Client) -> None:
    post(client, "r1", *["healthy"] * 8, old_logprobs="left out")
    active = client.get("/v1/alerts?run=r1&state=active").json()["alerts"]
    assert {(row["alert"], row["severity"]) for row in active} == {("ProbabilityDiff", "warning")}
    found = verdict(client)
    assert (found["verdict"], found["state"], found["half"], found["cause"]) == ("warn", "off_policy", None, None)
    assert found["head"] == "Off-policy since step 0; which half cannot be told."


def test_a_run_without_sampling_logprobs(client: Client) -> None:
    post(client, "r1", *["healthy"] * 8, sampling_logprobs="left out")
    assert verdict(client)["head"] == "Healthy at step 7, as far as can be told without sampling_logprobs."


@pytest.mark.parametrize(
    "modes, end", [(["healthy"] * 7, "healthy to the end"), (["nan"] * 7, "in alarm: DataQuality")]
)
def test_a_finished_run(client: Client, modes: list[str], end: str) -> None:
    post(client, "r1", *modes)
    client.request("PATCH", "/v1/runs/r1", content=b'{"finished": true}', headers=JSON)
    assert verdict(client)["head"].startswith(f"Finished at step 6, {end}")


def test_lists_say_the_same_but_for_what_to_do(client: Client) -> None:
    post(client, "r1", *["healthy"] * 30, *["top_p"] * 6)
    post(client, "r2", *["healthy"] * 7)
    for row in [*client.get("/v1/runs").json()["runs"], client.get("/v1/runs/r1").json()]:
        whole = verdict(client, row["run"])
        assert row["summary"] == {name: value for name, value in whole.items() if name != "action"}
        assert row["verdict"] == row["summary"]["verdict"]


def test_a_cause_that_a_list_has_found_stands_while_its_breach_goes_on(client: Client) -> None:
    post(client, "r1", *["healthy"] * 30, *["top_p"] * 6)
    before = client.get("/v1/runs").json()["runs"][0]["summary"]
    client.post("/v1/runs/r1/batches", content=batch(36, "top_p"), headers=JSON)
    after = client.get("/v1/runs").json()["runs"][0]["summary"]
    assert (after["cause"], after["score"]) == (before["cause"], before["score"])
    assert before["cause"] is not None


def test_a_list_looks_for_few_causes_at_once_and_denies_none(client: Client) -> None:
    for run in ("r1", "r2", "r3"):
        post(client, run, *["healthy"] * 8, *["top_p"] * 6)
    heads = [row["summary"]["head"] for row in client.get("/v1/runs").json()["runs"]]
    assert sum("the engine moved away from the trainer." in head for head in heads) == 2
    for _ in range(2):
        heads = [row["summary"]["head"] for row in client.get("/v1/runs").json()["runs"]]
    assert not any("the engine moved away from the trainer." in head for head in heads)
