"""GET /v1/runs/{run}/steps/{step}/histograms: the counts of the tokens that were posted, raw or reduced."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from offpolicy_monitor.client.reduce import reduced
from offpolicy_monitor.summary import from_bytes
from offpolicy_monitor.summary.tables.density import BINS, edges

from tests.fixtures.application import SAFETENSORS, Client, frame_bytes
from tests.fixtures.forged import of_version_3

LENGTHS = np.array([40, 1, 300])
NAMES = ("sampling_logprobs", "old_logprobs", "logprobs")
NUMERATORS = {"mismatch": "old_logprobs", "total": "logprobs"}


def sent(seed: int, names: tuple[str, ...] = NAMES) -> dict[str, np.ndarray]:
    source = np.random.default_rng(seed)
    count = int(LENGTHS.sum())
    base = -source.exponential(1.0, count) * 10 ** -source.uniform(0, 4, count)
    columns = {name: np.minimum(0, base * source.uniform(0.7, 1.4, count)).astype(np.float32) for name in NAMES}
    return {"lengths": LENGTHS, **{name: columns[name] for name in names}}


def post(client: Client, arrays: dict[str, np.ndarray], **envelope: Any) -> None:
    response = client.post(
        "/v1/runs/a/batches", content=frame_bytes({"step": 0, **envelope}, arrays), headers=SAFETENSORS
    )
    assert response.status_code == 200, response.text


def densities(client: Client) -> dict[str, Any]:
    response = client.get("/v1/runs/a/steps/0/histograms")
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()["densities"]
    return found


def cells(found: dict[str, Any]) -> Counter[tuple[int, int]]:
    return Counter(
        {(i, j): n for i, j, n in zip(*(found[key] for key in ("numerator", "denominator", "count")), strict=True)}
    )


def expected(arrays: list[dict[str, np.ndarray]], numerator: str) -> Counter[tuple[int, int]]:
    """By how many edges are below each log-prob."""
    pairs = [(one[numerator], one["sampling_logprobs"]) for one in arrays]
    at = [np.searchsorted(edges(), np.concatenate(side), side="left").tolist() for side in zip(*pairs, strict=True)]
    return Counter(zip(*at, strict=True))


def test_densities_are_the_tokens_of_all_shards_by_both_of_their_log_probs(client: Client) -> None:
    shards = [sent(1), sent(2)]
    for index, arrays in enumerate(shards):
        post(client, arrays, shard=index, shards=2)
    found = densities(client)
    assert set(found) == {"mismatch", "total"}
    for gap, numerator in NUMERATORS.items():
        assert cells(found[gap]) == expected(shards, numerator)
        assert found[gap]["edges"] == sorted(found[gap]["edges"]) and len(found[gap]["edges"]) == BINS - 1
        assert min(found[gap]["count"]) > 0


@pytest.mark.parametrize(
    ("names", "gaps"), [(NAMES[:2], {"mismatch"}), ((NAMES[0], NAMES[2]), {"total"}), (NAMES[1:], set())]
)
def test_a_gap_that_does_not_begin_at_the_engine_has_no_density(
    client: Client, names: tuple[str, ...], gaps: set[str]
) -> None:
    post(client, sent(1, names))
    assert set(densities(client)) == gaps


def test_a_step_without_a_token_has_no_density(client: Client) -> None:
    post(client, {**sent(1), "mask": np.zeros(int(LENGTHS.sum()), np.uint8)})
    assert densities(client) == {}


def test_a_step_with_a_shard_of_an_older_client_has_no_density(client: Client) -> None:
    shards = [sent(1), sent(2)]
    post(client, shards[0], shard=0, shards=2)
    assert set(densities(client)) == {"mismatch", "total"}
    envelope = {"step": 0, "shard": 1, "shards": 2}
    summary = from_bytes(reduced(envelope, shards[1])["summary"].tobytes())
    stored = np.frombuffer(of_version_3(summary), np.uint8)
    post(client, {"summary": stored}, shard=1, shards=2)
    assert client.get("/v1/runs/a/steps/0").json()["gaps"]["total"]["tokens"] == 2 * LENGTHS.sum()
    assert densities(client) == {}
