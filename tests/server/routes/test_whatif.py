"""GET /v1/runs/{run}/whatif over posted shards: what it says is what /v1/evaluate masks at the same threshold."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pytest
from offpolicy_monitor.server.app import create_app
from offpolicy_monitor.settings import Settings
from offpolicy_monitor.vocabulary import STANDARD_METHOD

from tests.fixtures.application import JSON, SAFETENSORS, Client, database, frame_bytes, running

LENGTHS = np.array([40, 1, 300, 120, 75, 500, 9, 64])


def columns(seed: int, advantages: bool = True) -> dict[str, np.ndarray]:
    source = np.random.default_rng(seed)
    count = int(LENGTHS.sum())
    mu = -source.exponential(1.0, count).astype(np.float32) - 0.01
    old = mu + source.normal(0, 0.05, count).astype(np.float32).clip(max=0.005)
    pi = old + source.normal(-0.01, 0.1, count).astype(np.float32).clip(max=0.004)
    sent = {"lengths": LENGTHS, "sampling_logprobs": mu, "old_logprobs": old, "logprobs": pi}
    return sent | ({"advantages": source.choice([-1, 0, 1], len(LENGTHS)).astype(np.float32)} if advantages else {})


def post(client: Client, step: int, seed: int, **changes: Any) -> None:
    content = frame_bytes({"step": step, **changes}, columns(seed))
    response = client.post("/v1/runs/a/batches", content=content, headers=SAFETENSORS)
    assert response.status_code == 200, response.text


def whatif(client: Client, query: str) -> dict[str, Any]:
    response = client.get(f"/v1/runs/a/whatif?{query}")
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def evaluated(client: Client, seeds: list[int], row: dict[str, Any]) -> dict[str, float]:
    """Token, sequence and |A| shares of a row over several batches taken together."""
    shares = {name: 0.0 for name in ("masked_tokens", "tokens", "masked_sequences", "sequences")}
    for seed in seeds:
        content = frame_bytes({"methods": [row]}, columns(seed))
        [figures] = client.post("/v1/evaluate", content=content, headers=SAFETENSORS).json()["methods"]
        for name in shares:
            shares[name] += figures[name]
    return {
        "masked_token_fraction": shares["masked_tokens"] / shares["tokens"],
        "masked_sequence_fraction": shares["masked_sequences"] / shares["sequences"],
    }


@pytest.fixture(scope="module")
def of_two_steps(shared_client: Client) -> Client:
    """Of run `a`, of which two steps are stored."""
    for step in range(2):
        post(shared_client, step, seed=20 + step)
    return shared_client


def test_a_method_with_one_threshold_answers_one_curve_of_all_steps_of_the_range(client: Client) -> None:
    for step in range(4):
        post(client, step, seed=step)
    answer = whatif(client, "method=opsm&from=1&to=2&threshold=0.01&threshold=0.003")
    assert (answer["method"], answer["gap"], answer["level"]) == ("opsm", "total", "geometric")
    assert (answer["steps"], answer["steps_read"], answer["steps_in_range"]) == ([1, 2], 2, 2)
    assert answer["threshold"] == [0.01, 0.003]
    for index, delta in enumerate(answer["threshold"]):
        exact = evaluated(client, [1, 2], {"method": "opsm", "delta": delta})
        for name, value in exact.items():
            assert answer[name][index] == pytest.approx(value, abs=answer["error"][index])
    assert answer["error"][0] < 0.002
    assert answer["max_error"] == max(answer["error"])
    assert answer["by_advantage_sign"]["positive"]["masked_token_fraction"] == [0, 0]
    assert list(answer["by_length_quartile"]) == ["1", "2", "3", "4"]


def test_a_two_sided_method_answers_a_curve_a_bound_exact_at_the_histograms_own_edges(client: Client) -> None:
    post(client, 0, seed=7)
    answer = whatif(client, "method=mask&level=geometric&gap=staleness")
    for side in ("lower", "upper"):
        curve = answer[side]
        assert curve["threshold"] == sorted(curve["threshold"])
        assert curve["max_error"] < 0.002
        for index in range(0, len(curve["threshold"]), 7):
            row = {"method": "mask", "level": "geometric", "gap": "staleness", side: curve["threshold"][index]}
            exact = evaluated(client, [7], row)
            assert curve["masked_token_fraction"][index] == pytest.approx(exact["masked_token_fraction"], abs=1e-12)


def test_rules_that_reweight_mask_nothing_and_say_what_they_truncate(client: Client) -> None:
    post(client, 0, seed=3)
    lower = whatif(client, "method=truncate&threshold=0.95")["lower"]
    assert lower["masked_token_fraction"] == [0.0]
    assert 0 < lower["truncated_token_fraction"][0] < 1


def test_a_threshold_of_its_own_has_a_curve_of_its_own(client: Client) -> None:
    post(client, 0, seed=3)
    answer = whatif(client, "method=trm&threshold=0.05")
    exact = evaluated(client, [3], {"method": "trm", "max": 0.05, "mean": 1e9})
    assert answer["max"]["masked_token_fraction"] == [pytest.approx(exact["masked_token_fraction"], abs=1e-12)]
    assert set(answer["mean"]) == set(answer["max"])


def test_every_row_of_a_run_that_has_curves_is_answered_by_its_own_query(of_two_steps: Client) -> None:
    about = of_two_steps.get("/v1/runs/a").json()
    rows = {row["name"]: row for row in about["methods"]}
    assert about["whatif"].keys() == rows.keys()
    assert about["compared"][0] == STANDARD_METHOD
    for name, kept in about["whatif"].items():
        answer = whatif(of_two_steps, urlencode({**kept["query"], "row": name}))
        assert answer["parameters"] == kept["thresholds"]
        marked = {preset["parameter"]: preset["threshold"] for preset in answer["presets"] if preset["name"] == name}
        assert marked == {each: rows[name][each] for each in kept["thresholds"] if each in rows[name]} != {}
        for parameter in answer["parameters"]:
            curve = answer if answer["parameter"] else answer[parameter]
            is_ratio = rows[name]["method"] in ("truncate", "veto") or rows[name].get("statistic") == "ratio"
            assert curve["ratio"] == is_ratio and curve["threshold"]


def test_a_variant_is_named_as_recommendations_name_it(of_two_steps: Client) -> None:
    advised = of_two_steps.get("/v1/runs/a/recommendations").json()["methods"]
    of_k3 = whatif(of_two_steps, "method=mask&level=geometric&statistic=k3")
    [found] = [row for row in advised if (row["method"], row.get("variant")) == ("mask", of_k3["variant"])]
    assert (found["level"], found["parameter"]) == ("geometric", "upper")
    assert "variant" not in whatif(of_two_steps, "method=mask&level=geometric&statistic=ratio")


def test_a_gap_nobody_asked_the_method_for_is_refused_until_a_row_of_the_run_puts_it_there(client: Client) -> None:
    post(client, 0, seed=3)
    refused = client.get("/v1/runs/a/whatif?method=ipo&gap=mismatch")
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["field"] == "gap"
    assert "PATCH the run" in refused.json()["detail"]
    rows = b'{"methods": [{"name": "ipo_mismatch", "method": "ipo", "gap": "mismatch", "threshold": 0.1}]}'
    assert client.request("PATCH", "/v1/runs/a", content=rows, headers=JSON).status_code == 200
    post(client, 1, seed=4)
    answer = whatif(client, "method=ipo&gap=mismatch&from=1&threshold=0.02")
    exact = evaluated(client, [4], {"method": "ipo", "gap": "mismatch", "threshold": 0.02})
    assert answer["masked_token_fraction"] == [pytest.approx(exact["masked_token_fraction"], abs=1e-3)]


def test_a_run_without_steps_in_the_range_answers_empty_curves(client: Client) -> None:
    post(client, 0, seed=3)
    answer = whatif(client, "method=opsm&from=5")
    assert (answer["steps"], answer["threshold"], answer["masked_token_fraction"]) == ([], [], [])


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("", "method"),
        ("method=nothing", "method"),
        ("method=opsm&gap=all", "gap"),
        ("method=opsm&level=token", "level"),
        ("method=opsm&statistic=k1", "statistic"),
        ("method=mask&level=token&statistic=k3", "statistic"),
        ("method=mask&level=sequence&statistic=k3&reduce=max", "reduce"),
        ("method=dppo&divergence=js", "divergence"),
        ("method=opsm&threshold=-0.1", "threshold"),
        ("method=opsm&threshold=nan", "threshold"),
        ("method=opsm&threshold=x", "threshold"),
        ("method=opsm&from=-1", "from"),
        ("method=opsm&thresholds=1", "thresholds"),
        ("method=opsm&row=nope", "row"),
    ],
)
def test_what_cannot_be_answered_is_refused_by_name(of_two_steps: Client, query: str, field: str) -> None:
    refused = of_two_steps.get(f"/v1/runs/a/whatif?{query}")
    assert refused.status_code == 422, refused.text
    assert any(field in error["field"] for error in refused.json()["errors"]), refused.json()


def test_steps_times_thresholds_are_bounded_by_a_setting(tmp_path: Path, migrated_copy: None) -> None:
    with running(create_app(Settings(database_url=database(tmp_path), device="cpu", max_whatif_points=6))) as client:
        for step in range(3):
            post(client, step, seed=step)
        assert whatif(client, "method=m2po&threshold=0.1&threshold=0.01")["steps_read"] == 3
        assert whatif(client, f"method=m2po&from=2{6 * '&threshold=0.1'}")["steps_read"] == 1
        refused = client.get(f"/v1/runs/a/whatif?method=m2po{3 * '&threshold=0.1'}")
        assert (refused.status_code, refused.json()["type"].rpartition(":")[2]) == (422, "over-limit")
        (error,) = refused.json()["errors"]
        assert error["field"] == "threshold" and "3 steps x 3 thresholds is over the limit of 6" in error["message"]
        assert "OFFPOLICY_MAX_WHATIF_POINTS" in error["message"]
        assert len(whatif(client, "method=m2po")["threshold"]) > 6


def test_an_unknown_run_is_not_found(client: Client) -> None:
    assert client.get("/v1/runs/nobody/whatif?method=opsm").status_code == 404


@pytest.mark.parametrize(
    ("row", "parameter", "thresholds", "open_bound"),
    [
        ({"method": "opsm"}, "delta", (0.002, 0.0137, 0.08), {}),
        ({"method": "mask", "level": "token", "gap": "mismatch"}, "upper", (1.02, 1.07, 1.3), {}),
        ({"method": "mask", "level": "geometric", "gap": "total"}, "upper", (1.0005, 1.01, 1.05), {}),
        ({"method": "mask", "level": "geometric", "gap": "total"}, "lower", (0.97, 0.99, 0.9995), {}),
        ({"method": "ipo"}, "threshold", (0.15, 0.4), {}),
        # Bounds of these are distances from 1, or of probabilities from each other: a lower one of 1 drops nothing.
        ({"method": "ppo_clip", "level": "geometric"}, "upper", (0.0003, 0.004, 0.05), {"lower": 1.0}),
        ({"method": "ppo_clip", "level": "token"}, "upper", (0.02, 0.2), {"lower": 1.0}),
        ({"method": "dppo", "divergence": "tv"}, "upper", (0.15, 0.4), {"lower": 1.0}),
    ],
)
def test_any_threshold_drops_what_the_row_of_the_method_drops_within_the_error_that_is_stated(
    of_two_steps: Client,
    row: dict[str, Any],
    parameter: str,
    thresholds: tuple[float, ...],
    open_bound: dict[str, float],
) -> None:
    asked = "&".join(f"{name}={value}" for name, value in row.items())
    for threshold in thresholds:
        answer = whatif(of_two_steps, f"{asked}&threshold={threshold}")
        curve = answer if answer["parameter"] else answer[parameter]
        [error] = curve["error"]
        exact = evaluated(of_two_steps, [20, 21], {**row, **open_bound, parameter: threshold})
        assert error < 0.2  # one of few sequences may lie within a column
        for name, value in exact.items():
            assert curve[name] == [pytest.approx(value, abs=error + 1e-9)], (row, threshold, name)


@pytest.mark.parametrize(
    ("method", "parameter", "thresholds"),
    [
        ("m2po_paper", "threshold", (0.003, 0.02)),
        ("vaco", "threshold", (0.0625, 0.09375)),
        ("cppo", "delta", (0.02, 0.2)),
    ],
)
def test_a_method_on_request_is_kept_where_a_row_of_the_run_has_it(
    client: Client, method: str, parameter: str, thresholds: tuple[float, ...]
) -> None:
    post(client, 0, seed=30)
    refused = client.get(f"/v1/runs/a/whatif?method={method}")
    assert (refused.status_code, refused.json()["type"].rpartition(":")[2]) == (422, "not-kept")
    assert f"{method} is kept where a row of the run puts it" in refused.text
    chosen = client.request(
        "PATCH", "/v1/runs/a", content=json.dumps({"methods": ["opsm", method]}).encode(), headers=JSON
    )
    assert chosen.status_code == 200, chosen.text
    post(client, 1, seed=31)
    for threshold in thresholds:
        answer = whatif(client, f"method={method}&from=1&threshold={threshold}")
        curve = answer if answer["parameter"] else answer[parameter]
        [error] = curve["error"]
        assert error < 0.2
        for name, value in evaluated(client, [31], {"method": method, parameter: threshold}).items():
            assert curve[name] == [pytest.approx(value, abs=error + 1e-9)], (threshold, name)


def test_a_step_that_only_some_of_its_shards_tell_of_is_not_told_by_them(client: Client) -> None:
    post(client, 0, seed=32, shard=0, shards=2)
    rows = json.dumps({"methods": ["opsm", "vaco"]}).encode()
    assert client.request("PATCH", "/v1/runs/a", content=rows, headers=JSON).status_code == 200
    post(client, 0, seed=33, shard=1, shards=2)
    asked = "method=vaco&threshold=0.0625"
    refused = client.get(f"/v1/runs/a/whatif?{asked}")
    assert (refused.status_code, refused.json()["type"].rpartition(":")[2]) == (422, "not-kept")
    assert not [row for row in recommendations(client) if row["method"] == "vaco"]
    post(client, 1, seed=34)
    answer, alone = (whatif(client, f"{asked}&from={first}") for first in (0, 1))
    assert answer["steps_read"] == 2
    assert answer["masked_token_fraction"] == alone["masked_token_fraction"] != [0.0]
    assert [row for row in recommendations(client) if row["method"] == "vaco"]


def recommendations(client: Client) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.get("/v1/runs/a/recommendations?target=0.1").json()["methods"]
    return found
