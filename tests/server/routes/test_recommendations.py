"""GET /v1/runs/{run}/recommendations over posted shards."""

import pytest

from tests.fixtures.application import JSON, SAFETENSORS, Client, frame_bytes, json_bytes
from tests.server.routes.test_whatif import columns, evaluated


def test_each_method_at_its_own_gap_and_each_row_of_the_run_gets_a_threshold_a_bound(client: Client) -> None:
    for step in range(3):
        content = frame_bytes({"step": step}, columns(step))
        assert client.post("/v1/runs/a/batches", content=content, headers=SAFETENSORS).status_code == 200
    answer = client.get("/v1/runs/a/recommendations?target=0.05").json()
    assert (answer["target"], answer["steps"]) == (0.05, [0, 2])
    found = {(row["method"], row["gap"], row["level"], row["parameter"]): row for row in answer["methods"]}
    assert {("opsm", "total", "geometric", "delta"), ("ipo", "total", "token", "threshold")} <= set(found)
    assert ("mask", "total", "geometric", "lower") in found  # of the row geometric_mask_total
    row = found["ipo", "total", "token", "threshold"]
    exact = evaluated(client, [0, 1, 2], {"method": "ipo", "threshold": row["threshold"]})
    assert exact["masked_token_fraction"] == pytest.approx(0.05, abs=0.01)
    assert row["low"] <= row["threshold"] <= row["high"]
    assert f"threshold = {row['threshold']:.4g} drops 5.00% of the tokens" in row["summary"]
    states = {row["name"]: row["state"] for row in answer["presets"]}
    assert states["opsm_loose"] == "inert"
    assert set(states.values()) <= {"inert", "active", "saturated"}


def test_a_run_without_steps_in_the_range_gets_none(client: Client) -> None:
    client.post("/v1/runs/a/batches", content=json_bytes(), headers=JSON)
    answer = client.get("/v1/runs/a/recommendations?from=1000000").json()
    assert answer == {"target": 0.01, "methods": [], "presets": [], "steps": []}


@pytest.mark.parametrize("query", ["target=0", "target=1", "target=nan", "target=x", "to=-1", "goal=0.1"])
def test_a_target_that_is_no_share_is_refused(client: Client, query: str) -> None:
    client.post("/v1/runs/a/batches", content=json_bytes(), headers=JSON)
    refused = client.get(f"/v1/runs/a/recommendations?{query}")
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["field"] in query


def test_an_unknown_run_is_not_found(client: Client) -> None:
    assert client.get("/v1/runs/nobody/recommendations").status_code == 404
