"""GET /v1/runs/{run}/worst over posted shards, with real bytes."""

import json
from typing import Any

import numpy as np
import pytest
from offpolicy_monitor.methods import PRESETS
from offpolicy_monitor.methods.rule import Cut
from offpolicy_monitor.settings import Settings
from offpolicy_monitor.summary.tables.worst import MOST
from pydantic import ValidationError

from tests.fixtures.application import JSON, SAFETENSORS, Application, Client, frame_bytes, json_bytes
from tests.server.routes.test_whatif import LENGTHS, columns

NAMES = ("sampling_logprobs", "old_logprobs", "logprobs")


def post(client: Client, step: int, seed: int, **changes: Any) -> dict[str, np.ndarray]:
    """Post a shard with ids, and answer its arrays."""
    shard = changes.get("shard", 0)
    ids = [f"p{shard}-{index}" for index in range(len(LENGTHS))]
    sent = columns(seed)
    content = frame_bytes({"step": step, "sequence_ids": ids, **changes}, sent)
    response = client.post("/v1/runs/a/batches", content=content, headers=SAFETENSORS)
    assert response.status_code == 200, response.text
    return sent


def worst(client: Client, query: str = "") -> list[dict[str, Any]]:
    response = client.get(f"/v1/runs/a/worst?{query}")
    assert response.status_code == 200, response.text
    found: list[dict[str, Any]] = response.json()["sequences"]
    return found


def log_ratios(sent: dict[str, np.ndarray], above: str, below: str) -> list[np.ndarray]:
    """d of each sequence."""
    return np.split(sent[above].astype(np.float64) - sent[below], np.cumsum(LENGTHS)[:-1])


@pytest.fixture(scope="module")
def of_one_step(shared_client: Client) -> Client:
    """Of run `a`, of which step 7 is stored."""
    assert shared_client.post("/v1/runs/a/batches", content=json_bytes(), headers=JSON).status_code == 200
    return shared_client


def test_sequences_come_worst_first_with_ids_figures_and_their_worst_tokens(client: Client) -> None:
    shards = [post(client, 4, seed, shard=seed, shards=2) for seed in range(2)]
    d = {(s, i): r for s, sent in enumerate(shards) for i, r in enumerate(log_ratios(sent, NAMES[2], NAMES[0]))}
    k3 = {where: float(np.sum(np.expm1(ratios) - ratios)) for where, ratios in d.items()}
    keys = {
        "abs_log_ratio_max": lambda where: -float(np.abs(d[where]).max()),
        "log_geometric_ratio": lambda where: -abs(float(d[where].mean())),
        "k3_share": lambda where: -k3[where],
    }
    for by, key in keys.items():
        found = worst(client, f"gap=total&by={by}")
        assert [(s["shard"], s["index"]) for s in found] == sorted(d, key=key)[:5]
        for rank, sequence in enumerate(found, 1):
            where = sequence["shard"], sequence["index"]
            assert (sequence["step"], sequence["minibatch"]) == (4, 0)
            assert sequence["id"] == f"p{where[0]}-{where[1]}"
            assert sequence["tokens"] == LENGTHS[where[1]]
            assert sequence["by"] == [{"gap": "total", "by": by, "rank": rank}]
            figures, furthest = sequence["gaps"]["total"], int(np.abs(d[where]).argmax())
            assert figures["abs_log_ratio_max"] == pytest.approx(np.abs(d[where]).max(), rel=1e-6)
            assert figures["log_geometric_ratio"] == pytest.approx(d[where].mean(), rel=1e-5, abs=1e-8)
            assert figures["k3"] == pytest.approx(k3[where] / len(d[where]), rel=1e-4)
            assert figures["k3_share"] == pytest.approx(k3[where] / sum(k3.values()), rel=1e-4)
            [position] = [p for p in sequence["positions"] if p["position"] == furthest]
            assert position["log_ratio"]["total"] == pytest.approx(d[where][furthest], rel=1e-6)
            start = int(LENGTHS[: where[1]].sum())
            assert {n: position[n] for n in NAMES} == {n: shards[where[0]][n][start + furthest] for n in NAMES}
            assert "columns" not in sequence
    assert len(worst(client, "limit=3")) == 3
    assert {where["rank"] for where in worst(client, "limit=1")[0]["by"]} >= {1}
    assert {name for sequence in worst(client) for name in sequence["gaps"]} == {"mismatch", "staleness", "total"}


def test_the_latest_step_and_its_last_gradient_step_are_answered_unless_named(client: Client) -> None:
    post(client, 1, 1, minibatch=0)
    post(client, 1, 2, minibatch=1)
    post(client, 3, 3, shards=2)
    assert {s["step"] for s in worst(client)} == {3}  # although a shard is missing
    assert {(s["step"], s["minibatch"]) for s in worst(client, "step=1")} == {(1, 1)}
    assert {s["minibatch"] for s in worst(client, "step=1&minibatch=0")} == {0}
    assert worst(client, "step=1") != worst(client, "step=1&minibatch=0")


def test_the_first_of_each_ranking_keep_raw_log_probs_where_the_setting_says_so(application: Application) -> None:
    with application(keep_worst=1) as client:
        sent = post(client, 0, 5)
        found = worst(client, "limit=100")
    kept = [sequence for sequence in found if "columns" in sequence]
    assert [s["index"] for s in found if any(where["rank"] == 1 for where in s["by"])] == [s["index"] for s in kept]
    for sequence in kept:
        start, length = int(LENGTHS[: sequence["index"]].sum()), int(LENGTHS[sequence["index"]])
        assert sequence["columns"]["position"] == list(range(length))
        for name in NAMES:
            assert sequence["columns"][name] == sent[name][start : start + length].tolist()


#: Presets in lots that one answer decides.
LOTS = [[preset.name for preset in PRESETS[first : first + 8]] for first in range(0, len(PRESETS), 8)]


def evaluated(
    client: Client, sent: dict[str, np.ndarray], mask: np.ndarray | None = None
) -> dict[str, list[list[int]]]:
    """What each preset keeps of each sequence, by /v1/evaluate on all of the batch."""
    arrays = sent if mask is None else {**sent, "mask": mask}
    content = frame_bytes({"methods": [preset.definition for preset in PRESETS]}, arrays)
    answer = client.post("/v1/evaluate?detail=token", content=content, headers=SAFETENSORS).json()
    return {row["name"]: row["keep_tokens"] for row in answer["methods"]}


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("advantages", ["none", "sequence", "token"])
def test_what_rows_keep_of_raw_tokens_is_what_evaluate_keeps_of_the_same_sequences(
    application: Application, masked: bool, advantages: str
) -> None:
    sent = columns(5, advantages == "sequence")
    if advantages == "token":
        sent["advantages"] = np.random.default_rng(4).choice([-1, 0, 1], int(LENGTHS.sum())).astype(np.float32)
    sent["logprobs"][[3, 50, 400]] = np.nan
    mask = np.random.default_rng(1).random(int(LENGTHS.sum())) < 0.8 if masked else None
    arrays = sent if mask is None else {**sent, "mask": mask}
    with application(keep_worst=3) as client:
        client.post("/v1/runs/a/batches", content=frame_bytes({"step": 0}, arrays), headers=SAFETENSORS)
        expected, told = evaluated(client, sent, mask), 0
        for names in LOTS:
            for sequence in worst(client, "limit=100&" + "&".join(f"methods={name}" for name in names)):
                if "columns" not in sequence:
                    assert "keep" not in sequence
                    continue
                assert list(sequence["keep"]) == names
                for name, keep in sequence["keep"].items():
                    if keep is not None:
                        told, of_all = told + 1, expected[name][sequence["index"]]
                        assert keep == [of_all[position] for position in sequence["columns"]["position"]], name
                    else:
                        [row] = [preset for preset in PRESETS if preset.name == name]
                        assert isinstance(row.rule, Cut) or (row.needs_advantages and advantages == "none")
    assert told > 20 * 5


def test_of_a_sequence_that_was_cut_only_rows_on_tokens_are_decided(application: Application) -> None:
    lengths = np.array([5000, 30])
    source = np.random.default_rng(2)
    mu = -source.exponential(1.0, 5030).astype(np.float32) - 0.01
    sent = {
        "lengths": lengths,
        "sampling_logprobs": mu,
        "logprobs": mu + source.normal(0, 0.3, 5030).astype(np.float32),
    }
    sent["logprobs"][[7, 5010]] -= 4  # the worst token is near the beginning
    rows = [
        {"name": "token", "method": "mask", "level": "token", "gap": "total", "lower": 0.8, "upper": 1.2},
        {"name": "whole", "method": "mask", "level": "geometric", "gap": "total", "lower": 0.99, "upper": 1.01},
        {"name": "lacks", "method": "mask", "level": "token", "gap": "mismatch", "lower": 0.8, "upper": 1.2},
    ]
    with application(keep_worst=2) as client:
        client.post("/v1/runs/a/batches", content=frame_bytes({"step": 0}, sent), headers=SAFETENSORS)
        client.request("PATCH", "/v1/runs/a", content=json.dumps({"methods": rows}).encode(), headers=JSON)
        long, short = sorted(worst(client, "methods=token&methods=whole&methods=lacks"), key=lambda s: s["index"])
    assert (len(long["columns"]["position"]), long["columns"]["position"][0]) == (4096, 0)
    assert long["keep"]["whole"] is None and short["keep"]["whole"] in ([0] * 30, [1] * 30)
    assert 0 < sum(long["keep"]["token"]) < 4096 == len(long["keep"]["token"])
    assert long["keep"]["lacks"] is short["keep"]["lacks"] is None


def test_advantages_versions_and_rewards_are_kept_as_they_were_sent(application: Application) -> None:
    sent, source = columns(5), np.random.default_rng(6)
    sent["policy_versions"] = source.integers(-1, 4, int(LENGTHS.sum()))
    sent["rewards"] = source.normal(size=len(LENGTHS)).astype(np.float32)
    with application(keep_worst=1) as client:
        content = frame_bytes({"step": 0, "policy_version": 4}, sent)
        assert client.post("/v1/runs/a/batches", content=content, headers=SAFETENSORS).status_code == 200
        found = [sequence for sequence in worst(client, "limit=100") if "columns" in sequence]
    assert found
    for sequence in found:
        index, kept = sequence["index"], sequence["columns"]
        start = int(LENGTHS[:index].sum())
        assert (kept["advantages"], kept["rewards"]) == (sent["advantages"][index], sent["rewards"][index])
        assert kept["policy_versions"] == sent["policy_versions"][start : start + int(LENGTHS[index])].tolist()


def test_the_worst_of_a_range_are_those_of_all_its_steps_each_with_its_own(client: Client) -> None:
    every = []
    for step in range(4):
        sent = post(client, step, step)
        d = log_ratios(sent, NAMES[2], NAMES[0])
        every += [(float(np.abs(of_one).max()), step, index) for index, of_one in enumerate(d)]
    ordered = sorted((one for one in every if 1 <= one[1] <= 3), reverse=True)[:MOST]
    found = worst(client, "from=1&to=3&gap=total&by=abs_log_ratio_max")
    assert [(s["step"], s["index"]) for s in found] == [(step, index) for _, step, index in ordered]
    assert [s["by"][0]["rank"] for s in found] == [1, 2, 3, 4, 5]
    assert worst(client, "from=2&to=2") == worst(client, "step=2")
    assert {s["step"] for s in worst(client, "from=3")} == {3}
    assert worst(client, "from=9") == []


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("step=1&from=1", "step"),
        ("minibatch=0&to=1", "minibatch"),
        ("methods=nothing", "methods"),
        ("&".join(f"methods={preset.name}" for preset in PRESETS[:9]), "methods"),
    ],
)
def test_a_range_has_no_step_and_rows_are_those_of_the_run(of_one_step: Client, query: str, field: str) -> None:
    refused = of_one_step.get(f"/v1/runs/a/worst?{query}")
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["field"] == field


def test_no_more_can_be_kept_than_a_ranking_has_places() -> None:
    assert Settings(keep_worst=MOST).keep_worst == MOST
    with pytest.raises(ValidationError):
        Settings(keep_worst=MOST + 1)  # pyrefly: ignore[bad-argument-type]


def test_without_ids_and_without_differences_there_is_nothing_to_find_by_id(client: Client) -> None:
    client.post("/v1/runs/a/batches", content=json_bytes(), headers=JSON)
    found = worst(client)
    assert [(s["index"], s["id"]) for s in found] == [(0, None), (1, None)]
    same = json_bytes(step=8, old_logprobs=None, logprobs=[-0.5, -1.25, -0.0625, -2.25, -0.75])
    client.post("/v1/runs/a/batches", content=same, headers=JSON)
    assert worst(client, "step=8") == []


@pytest.mark.parametrize("query", ["step=8", "step=7&minibatch=1", "minibatch=1"])
def test_an_unknown_step_is_not_found(of_one_step: Client, query: str) -> None:
    refused = of_one_step.get(f"/v1/runs/a/worst?{query}")
    assert refused.status_code == 404
    assert refused.json()["type"] == "urn:offpolicy-monitor:problem:unknown-step"
    assert of_one_step.get("/v1/runs/nobody/worst").status_code == 404


@pytest.mark.parametrize(
    "query", ["step=-1", "step=x", "limit=0", "limit=1001", "gap=all", "by=k3", "minibatch=-1", "top=3"]
)
def test_what_cannot_be_answered_is_refused_by_name(of_one_step: Client, query: str) -> None:
    refused = of_one_step.get(f"/v1/runs/a/worst?{query}")
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["field"] == query.split("=")[0]
