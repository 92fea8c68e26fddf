"""POST /v1/runs/{run}/batches: what is answered, stored and counted."""

import gzip
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard
from offpolicy_monitor.summary import step
from offpolicy_monitor.summary.answer import gaps_told
from offpolicy_monitor.summary.form import Told
from offpolicy_monitor.summary.records import ALL, Wanted

from tests.fixtures.application import JSON, SAFETENSORS, Application, Client, frame_bytes, good_frame, json_bytes, rows

URL = "/v1/runs/r1/batches"


def post(client: Client, body: bytes, headers: dict[str, str] = JSON, url: str = URL) -> Any:
    response = client.post(url, content=body, headers=headers)
    assert response.status_code == 200, response.text
    return response.json()


def test_a_batch_is_answered_with_its_place_its_figures_and_a_verdict(client: Client) -> None:
    answer = post(client, json_bytes(shard=1, shards=2, minibatch=3))

    shard = {name: answer[name] for name in ("run", "step", "minibatch", "shard", "received_shards", "shards")}
    assert shard == {"run": "r1", "step": 7, "minibatch": 3, "shard": 1, "received_shards": 1, "shards": 2}
    assert (answer["duplicate"], answer["complete"]) == (False, False)
    assert (answer["verdict"], answer["alerts"]) == ("accept", [])
    assert (answer["tokens"], answer["sequences"], answer["empty_sequences"]) == (5, 2, 0)
    assert answer["gaps"]["mismatch"]["log_ratio_mean"] == pytest.approx(0.0, abs=1e-12)
    assert answer["gaps"]["mismatch"]["k1"] == pytest.approx(0.0, abs=1e-12)
    assert answer["gaps"]["staleness"]["k1"] == pytest.approx(-(0.25 - 0.0625 + 0.25) / 5)
    assert set(answer["gaps"]) == {"mismatch", "staleness", "total"}
    assert answer["methods"]["opsm"]["method"] == "opsm"


RECEIPT = {
    *("run", "step", "minibatch", "shard", "stored", "duplicate", "received_shards", "shards", "complete"),
    *("verdict", "alerts"),
}


def test_without_detail_a_batch_is_answered_with_where_it_stands_alone(client: Client) -> None:
    brief = post(client, good_frame(), SAFETENSORS, f"{URL}?detail=none")
    whole = post(client, json_bytes(), JSON, f"{URL}?detail=full")
    half = post(client, json_bytes(rollout="p", logprobs=None, step=8), JSON, f"{URL}?detail=none")
    assert brief.keys() == half.keys() == RECEIPT
    assert {**brief, "duplicate": True}.items() <= whole.items()
    assert {"tokens", "gaps", "methods"} <= whole.keys()


def test_figures_that_are_answered_are_not_made_again_to_be_stored(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = list[Wanted]()

    def counted(*of: Any) -> Told:
        made.append(of[-1])
        return gaps_told(*of)

    monkeypatch.setattr(step, "gaps_told", counted)
    post(client, good_frame(minibatches=1), SAFETENSORS)
    assert made == [ALL]


@pytest.mark.parametrize("query", ["?detail=all", "?detail=none&more=1", "?detail="])
def test_another_detail_is_refused_and_stores_nothing(client: Client, query: str, tmp_path: Path) -> None:
    assert client.post(f"{URL}{query}", content=good_frame(), headers=SAFETENSORS).status_code == 422
    assert rows(tmp_path)["shards"] == 0


#: What a batch is posted with: its body, its headers, and the status of its answer.
POSTS: dict[str, tuple[bytes, dict[str, str], int]] = {
    "stored already": (good_frame(), SAFETENSORS, 200),
    "no safetensors": (b"x", SAFETENSORS, 400),
    "another media type": (good_frame(), {"Content-Type": "text/plain"}, 415),
    "an unknown field": (json_bytes(stepp=1), JSON, 422),
    "over the limit": (json_bytes(labels={"a": "x" * 300}), JSON, 422),
    "another's host": (good_frame(), {**SAFETENSORS, "Host": "example.org"}, 421),
}


@pytest.mark.parametrize("case", POSTS)
def test_a_batch_is_answered_without_the_framework_as_it_would_be_by_it(client: Client, case: str) -> None:
    body, headers, status = POSTS[case]
    post(client, good_frame(), SAFETENSORS)
    headers = {**headers, "X-Request-Id": "the-same"}
    direct = client.post(f"{URL}?detail=none", content=body, headers=headers)
    by_framework = client.post(f"{URL}?detail=%6eone", content=body, headers=headers)
    assert direct.headers["X-Request-Id"] == "the-same"
    assert (direct.status_code, direct.content) == (by_framework.status_code, by_framework.content)
    assert direct.status_code == status
    assert direct.headers == by_framework.headers
    route = "unmatched" if status == 421 else "/v1/runs/{run}/batches"
    labels = f'{{route="{route}",status="{status}"}}'
    assert f"request_seconds_count{labels} {3 if status == 200 else 2}" in client.get("/metrics").text


def test_the_framework_is_passed_by_and_a_defect_is_a_document_all_the_same(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(*arguments: object) -> None:
        raise RuntimeError("a defect")

    post(client, good_frame(), SAFETENSORS)
    monkeypatch.setattr(client.app, "middleware_stack", fails)
    assert post(client, good_frame(), SAFETENSORS)["duplicate"]
    monkeypatch.setattr(client.app.state.services.pipeline, "ingest", fails)
    answer = client.post(URL, content=good_frame(), headers=SAFETENSORS)
    assert (answer.status_code, answer.json()["type"]) == (500, "urn:offpolicy-monitor:problem:internal")


def test_json_and_safetensors_of_the_same_batch_are_the_same_shard(client: Client) -> None:
    first = post(client, json_bytes())
    again = post(client, good_frame(), SAFETENSORS)

    assert again == {**first, "duplicate": True}


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_a_compressed_body_is_the_same_batch(client: Client, encoding: str) -> None:
    pack = gzip.compress if encoding == "gzip" else zstandard.ZstdCompressor().compress
    first = post(client, json_bytes())

    again = post(client, pack(json_bytes()), {**JSON, "Content-Encoding": encoding})

    assert again == {**first, "duplicate": True}


def test_a_duplicate_changes_nothing_and_raises_only_its_own_counter(client: Client, tmp_path: Path) -> None:
    post(client, json_bytes())
    before = rows(tmp_path)
    post(client, json_bytes())

    metrics = client.get("/metrics").text
    assert rows(tmp_path) == before
    assert 'offpolicy_duplicate_batches_total{run="r1"} 1.0' in metrics
    assert 'offpolicy_batches_total{run="r1"} 1.0' in metrics
    assert 'offpolicy_tokens_total{run="r1"} 5.0' in metrics


def test_a_step_is_complete_with_its_last_shard(client: Client) -> None:
    assert post(client, json_bytes(shard=0, shards=2))["complete"] is False
    last = post(client, json_bytes(shard=1, shards=2))
    assert (last["complete"], last["received_shards"]) == (True, 2)
    assert client.get("/v1/runs/r1/steps/7").json()["tokens"] == 10


def test_a_higher_attempt_supersedes_a_step(client: Client) -> None:
    post(client, json_bytes())
    post(client, json_bytes(attempt=1, logprobs=[-1.0] * 5))
    assert client.get("/v1/runs/r1/steps/7").json()["attempt"] == 1


def test_a_batch_whose_every_token_is_masked_is_accepted_without_figures(client: Client) -> None:
    answer = post(client, json_bytes(mask=[0] * 5))

    assert (answer["tokens"], answer["sequences"], answer["empty_sequences"]) == (0, 2, 2)
    assert answer["gaps"]["mismatch"]["tokens"] == 0
    assert "k3" not in answer["gaps"]["mismatch"]
    assert "masked_token_fraction" not in answer["methods"].get("mis_token", {})
    assert client.get("/v1/runs/r1/steps/7").json()["tokens"] == 0
    assert "offpolicy_kl_nats{" not in client.get("/metrics").text


@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf])
def test_non_finite_log_probs_are_counted_and_reach_no_answer(client: Client, poison: float) -> None:
    column = np.array([-0.5, poison, -1.0], np.float32)
    arrays = {"lengths": np.array([3]), "sampling_logprobs": column, "old_logprobs": np.full(3, -0.5, np.float32)}

    response = client.post(URL, content=frame_bytes({"step": 1}, arrays), headers=SAFETENSORS)

    assert response.json()["excluded_tokens"] == {"nonfinite": 1}
    assert response.json()["gaps"]["mismatch"]["tokens"] == 2
    everything = [response.text, client.get("/v1/runs/r1/steps").text, client.get("/metrics").text]
    assert not any(word in text for text in everything for word in ("NaN", "Infinity"))


def test_a_sequence_of_length_0_is_empty_and_allowed(client: Client) -> None:
    answer = post(client, json_bytes(lengths=[5, 0]))
    assert (answer["sequences"], answer["empty_sequences"]) == (2, 1)


def test_a_gap_that_was_not_sent_is_absent(client: Client) -> None:
    answer = post(client, json_bytes(sampling_logprobs=None))
    assert set(answer["gaps"]) == {"staleness"}
    assert "attribution" not in answer


def test_the_two_halves_of_a_rollout_are_one_shard(client: Client, tmp_path: Path) -> None:
    half = post(client, json_bytes(rollout="p1", logprobs=None))
    assert (half["stored"], half["received_shards"], half["complete"]) == (False, 0, False)
    assert set(half["gaps"]) == {"mismatch"}
    assert rows(tmp_path)["shards"] == 0

    later = json_bytes(rollout="p1", lengths=None, sampling_logprobs=None, old_logprobs=None)
    whole = post(client, later)

    assert (whole["stored"], whole["complete"]) == (True, True)
    assert set(whole["gaps"]) == {"mismatch", "staleness", "total"}
    assert post(client, json_bytes(rollout="p1")) == {**whole, "duplicate": True}
    assert post(client, json_bytes()) == {**whole, "duplicate": True}


@pytest.mark.parametrize("value", [0.0, 0.5, math.nan, math.inf])
def test_a_first_half_of_sampling_log_probs_alone_is_answered_whatever_they_are(client: Client, value: float) -> None:
    sampling = np.array([-0.5, value, -0.25], np.float32)
    body = frame_bytes({"step": 1, "rollout": "p1"}, {"lengths": [3], "sampling_logprobs": sampling})

    half = post(client, body, SAFETENSORS)

    assert (half["stored"], half["tokens"], half["gaps"]) == (False, 3, {})
    assert half["excluded_tokens"] == {"nonfinite": 0 if math.isfinite(value) else 1}
    assert half["suspect_tokens"] == {"positive": int(value == 0.5), "exact_zero": int(value == 0)}
    assert half["zero_filled_tokens"] == 0


def test_a_later_half_whose_first_half_is_gone_is_410(application: Application, tmp_path: Path) -> None:
    later = json_bytes(rollout="p1", lengths=None, sampling_logprobs=None, old_logprobs=None)
    with application(rollout_bytes=10) as client:
        post(client, json_bytes(rollout="p1", logprobs=None))
        response = client.post(URL, content=later, headers=JSON)
    assert response.status_code == 410
    assert response.json()["errors"][0]["field"] == "rollout"
    assert rows(tmp_path)["shards"] == 0


@pytest.mark.parametrize("stored, status", [(True, 204), (False, 404)])
def test_a_deleted_run_forgets_its_first_halves(client: Client, stored: bool, status: int) -> None:
    post(client, json_bytes(rollout="p1", logprobs=None))
    if stored:
        post(client, json_bytes(step=1))
    assert client.request("DELETE", "/v1/runs/r1").status_code == status
    later = json_bytes(rollout="p1", lengths=None, sampling_logprobs=None, old_logprobs=None)
    assert client.post(URL, content=later, headers=JSON).status_code == 410


def test_one_shard_of_huge_rewards_is_refused_and_the_service_goes_on(client: Client) -> None:
    arrays = {"lengths": np.array([1]), "rewards": np.array([1.2e308])}
    arrays |= {name: np.array([-1.0]) for name in ("old_logprobs", "logprobs")}
    for shard in (0, 1):
        body = frame_bytes({"step": 1, "shard": shard, "shards": 2}, arrays)
        response = client.post(URL, content=body, headers=SAFETENSORS)
        assert response.status_code == 422
        assert [error["field"] for error in response.json()["errors"]] == ["rewards"]
    post(client, json_bytes())


def test_the_last_of_many_shards_is_answered_when_its_step_is_merged(client: Client) -> None:
    answers = [post(client, json_bytes(shard=shard, shards=15, policy_version=shard)) for shard in range(15)]

    assert [answer["complete"] for answer in answers] == [False] * 14 + [True]
    step = client.get("/v1/runs/r1/steps/7").json()
    assert (step["complete"], step["received_shards"], step["tokens"]) == (True, 15, 75)
    assert 'offpolicy_step{run="r1"} 7.0' in client.get("/metrics").text


def test_a_shard_of_a_settled_step_is_answered_again_but_takes_no_late_ones(
    application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("offpolicy_monitor.server.services.TIDY_SECONDS", 0.05)
    with application(step_timeout=0.5, settle_after=0.5) as client:
        first = post(client, json_bytes(shard=0, shards=3))
        post(client, json_bytes(shard=1, shards=3))
        late = json_bytes(shard=2, shards=3, step=7)
        deadline = time.monotonic() + 30
        while not client.get("/v1/runs/r1/series?field=tokens").json()["value"] and time.monotonic() < deadline:
            time.sleep(0.1)
        time.sleep(2)
        refused = client.post(URL, content=late, headers=JSON)
        again = post(client, json_bytes(shard=0, shards=3))

    assert (refused.status_code, refused.json()["type"]) == (409, "urn:offpolicy-monitor:problem:step-settled")
    assert (again["duplicate"], again["received_shards"]) == (True, 2)
    for name in ("tokens", "gaps", "methods"):
        assert again[name] == first[name]
