"""Routing over HTTP: in the answer to a batch and to /v1/evaluate, in the merged step, series and metrics."""

from typing import Any

import numpy as np
import pytest

from tests.fixtures.application import BATCH, JSON, SAFETENSORS, Client, frame_bytes, json_bytes

URL = "/v1/runs/moe/batches"
#: Two layers, top 2, of five tokens; the second token differs in its first layer by one expert of two.
SAMPLING = [[[0, 1], [2, 3]]] * 5
OLD = [SAMPLING[0], [[0, 9], [3, 2]], *SAMPLING[2:]]


def post(client: Client, url: str = URL, **changes: Any) -> Any:
    body = json_bytes(**{"sampling_experts": SAMPLING, "old_experts": OLD, **changes})
    response = client.post(url, content=body, headers=JSON)
    assert response.status_code == 200, response.text
    return response.json()


def test_a_batch_and_an_evaluation_answer_the_routing_of_their_gaps(client: Client) -> None:
    answers = [post(client), post(client, "/v1/evaluate")]
    for answer in answers:
        assert set(answer["routing"]) == {"mismatch"}
        figures = answer["routing"]["mismatch"]
        assert figures["agreement"] == 0.95
        assert figures["by_layer"] == [0.9, 1.0]
        assert figures["changed_tokens_fraction"] == 0.2
        assert figures["changed_layers_mean"] == 0.2
        assert figures["changed"]["share_of_second_moment"] == 0.5  # d is -0.25 and 0.25, on one token each


def test_a_batch_without_experts_has_no_routing(client: Client) -> None:
    answer = post(client, sampling_experts=None)
    assert "routing" not in answer
    assert "routing" not in client.get("/v1/runs/moe/steps/7").json()
    assert "offpolicy_routing_agreement_ratio{" not in client.get("/metrics").text
    series = client.get("/v1/runs/moe/series?field=routing.mismatch.agreement").json()
    assert series["value"] == [None]


def test_shards_merge_to_the_routing_of_the_step_in_answers_series_and_metrics(client: Client) -> None:
    post(client, shards=2)
    assert post(client, shards=2, shard=1, old_experts=SAMPLING)["routing"]["mismatch"]["agreement"] == 1.0
    step = client.get("/v1/runs/moe/steps/7").json()["routing"]["mismatch"]
    assert (step["tokens"], step["agreement"], step["by_layer"]) == (10, 0.975, [0.95, 1.0])
    assert step["changed_tokens_fraction"] == 0.1
    assert step["agreeing"]["share_of_second_moment"] == 0.75
    wanted = {
        "agreement": 0.975,
        "changed_layers_mean": 0.1,
        "by_layer.0": 0.95,
        "changed.share_of_second_moment": 0.25,
        "trend.share": step["trend"]["share"],
    }
    for name, value in wanted.items():
        series = client.get(f"/v1/runs/moe/series?field=routing.mismatch.{name}").json()
        assert (series["step"], series["value"]) == ([7], [value]), name
    assert 'offpolicy_routing_agreement_ratio{gap="mismatch",run="moe"} 0.975' in client.get("/metrics").text


def test_a_figure_that_routing_does_not_have_is_refused(client: Client) -> None:
    post(client)
    assert client.get("/v1/runs/moe/series?field=routing.mismatch.nothing").status_code == 422


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_safetensors_and_json_answer_alike(client: Client, dtype: Any) -> None:
    arrays: dict[str, Any] = {
        name: np.array(values, np.int64 if name == "lengths" else np.float32)
        for name, values in BATCH.items()
        if isinstance(values, list)
    }
    arrays |= {"sampling_experts": np.array(SAMPLING, dtype), "old_experts": np.array(OLD, dtype)}
    answer = client.post("/v1/evaluate", content=frame_bytes({}, arrays), headers=SAFETENSORS).json()
    assert answer["routing"] == post(client, "/v1/evaluate")["routing"]
