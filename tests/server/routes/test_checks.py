"""GET /v1/runs/{run}/checks over posted shards, with real bytes."""

from typing import Any

import numpy as np
import pytest

from tests.fixtures.application import SAFETENSORS, Client, frame_bytes

SEQUENCES, LENGTH = 8, 25
TOKENS = SEQUENCES * LENGTH


def arrays(seed: int, **changes: Any) -> dict[str, Any]:
    """Shards as a trainer should post them; None leaves an array out."""
    random = np.random.default_rng(seed)
    mu = -random.exponential(1.0, TOKENS)
    old = mu + random.normal(0, 0.01, TOKENS)
    whole = {
        "sampling_logprobs": mu.astype(np.float32),
        "old_logprobs": old.astype(np.float32),
        "logprobs": (old + random.normal(0, 0.05, TOKENS)).astype(np.float32),
        "lengths": np.full(SEQUENCES, LENGTH),
        "advantages": random.normal(0, 1, SEQUENCES).astype(np.float32),
        "policy_versions": np.zeros(SEQUENCES, np.int64),
    }
    return {name: value for name, value in {**whole, **changes}.items() if value is not None}


def post(client: Client, sent: dict[str, Any], **envelope: Any) -> None:
    answer = client.post("/v1/runs/a/batches", content=frame_bytes(envelope, sent), headers=SAFETENSORS)
    assert answer.status_code == 200, answer.text


def checks(client: Client) -> dict[str, Any]:
    response = client.get("/v1/runs/a/checks")
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


def names(client: Client) -> list[str]:
    return [row["name"] for row in checks(client)["findings"]]


def test_a_run_that_is_posted_as_it_should_be_has_no_findings(client: Client) -> None:
    for step in range(8):
        for shard in range(2):
            post(client, arrays(2 * step + shard), step=step, shard=shard, shards=2, policy_version=step)
    assert checks(client) == {"findings": [], "steps": [0, 7]}


def test_every_rank_of_a_tensor_parallel_group_counts_its_tokens_twice(client: Client) -> None:
    for step in range(3):
        for shard in range(2):
            post(client, arrays(step), step=step, shard=shard, shards=2, policy_version=step)
    [found] = checks(client)["findings"]
    assert (found["name"], found["severity"]) == ("same_tokens", "warning")
    assert found["summary"] == "shards 0 and 1 hold the same 600 tokens: each is counted twice"
    assert found["change"].startswith("place=in_groups_of(n)")


def test_a_single_process_that_posts_one_shard_of_four_is_told_though_no_step_counts(client: Client) -> None:
    for step in range(7):
        post(client, arrays(step, advantages=None), step=step, shard=0, shards=4, policy_version=step)
    assert names(client) == ["one_shard_of_many", "no_advantages"]


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"old_logprobs": None}, "no_old_logprobs"),
        ({"advantages": None}, "no_advantages"),
        ({"policy_versions": None}, "no_policy_versions"),
    ],
)
def test_what_does_not_arrive_is_named(client: Client, changes: dict[str, Any], name: str) -> None:
    for step in range(2):
        post(client, arrays(step, **changes), step=step, policy_version=step)
    assert names(client) == [name]


def test_old_log_probs_that_are_a_copy_are_named_unless_the_run_is_bitwise(client: Client) -> None:
    for step in range(2):
        sent = arrays(step)
        post(client, sent | {"old_logprobs": sent["sampling_logprobs"]}, step=step, policy_version=step)
    assert names(client) == ["old_is_sampling"]
    client.request("PATCH", "/v1/runs/a", json={"profile": "bitwise"})
    assert names(client) == []


def test_log_probs_that_two_hooks_post_in_different_gradient_steps_are_all_there(client: Client) -> None:
    for step in range(2):
        post(client, arrays(step, logprobs=None), step=step, minibatch=0, minibatches=2, policy_version=step)
        post(client, arrays(9, sampling_logprobs=None), step=step, minibatch=1, minibatches=2, policy_version=step)
    assert names(client) == []


def test_an_engine_at_another_temperature_is_named_with_what_to_change(client: Client) -> None:
    for step in range(4):
        sent = arrays(step)
        hotter = (sent["old_logprobs"] * 1.3).astype(np.float32)
        post(client, sent | {"old_logprobs": hotter, "logprobs": hotter}, step=step, policy_version=step)
    found = {row["name"]: row for row in checks(client)["findings"]}
    assert "temperature" in found["temperature"]["change"]


def test_an_unknown_run_is_not_found(client: Client) -> None:
    assert client.get("/v1/runs/none/checks").status_code == 404
