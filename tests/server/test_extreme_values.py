"""Whatever a client may send is stored, merged, closed and read: the largest accepted values never make a 500."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fixtures.application import SAFETENSORS, Client, frame_bytes
from tests.fixtures.reduced import envelope_of, raw_body, summary_body

LARGEST = 1e100
LOGPROBS = st.sampled_from([-LARGEST, LARGEST, -1e39, -750.0, -200.0, -1.0, -1e-300, 0.0, 85.0, np.nan, np.inf])
FLOATS = st.sampled_from([-LARGEST, LARGEST, 1e77, -1.0, 0.0, 1e-300])
VERSIONS = st.sampled_from([-1, 0, 7, 2**62])
READINGS = (
    "steps/7", "steps?from=0", "worst?step=7", "diagnosis", "whatif?method=opsm", "whatif?method=m2po",
    "whatif?method=mask&level=token", "recommendations?target=0.01", "rules", "series?field=gaps.mismatch.k3",
)  # fmt: skip
SEQUENCES, LENGTH = 3, 4
RUNS = itertools.count()


def array(values: st.SearchStrategy[Any], *shape: int) -> st.SearchStrategy[np.ndarray]:
    size = int(np.prod(shape))
    return st.lists(values, min_size=size, max_size=size).map(lambda found: np.array(found).reshape(shape))


def optional(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | values


SHARDS = st.fixed_dictionaries(
    {
        "sampling_logprobs": array(LOGPROBS, SEQUENCES, LENGTH),
        "old_logprobs": array(LOGPROBS, SEQUENCES, LENGTH),
        "logprobs": array(LOGPROBS, SEQUENCES, LENGTH),
        "advantages": optional(array(FLOATS, SEQUENCES) | array(FLOATS, SEQUENCES, LENGTH)),
        "rewards": optional(array(FLOATS, SEQUENCES)),
        "entropy": optional(array(FLOATS, SEQUENCES, LENGTH)),
        "policy_versions": optional(array(VERSIONS, SEQUENCES) | array(VERSIONS, SEQUENCES, LENGTH)),
    }
).map(lambda arrays: {name: values for name, values in arrays.items() if values is not None})


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    shards=st.lists(SHARDS, min_size=2, max_size=2),
    version=st.sampled_from([None, -(2**62), 0, 2**62]),
    reduced=st.booleans(),
)
def test_two_shards_of_the_largest_values_are_stored_merged_closed_and_read(
    client: Client, shards: list[dict[str, np.ndarray]], version: int | None, reduced: bool
) -> None:
    run = f"r{next(RUNS)}"
    for shard, arrays in enumerate(shards):
        envelope = envelope_of(shard, 2, policy_version=version)
        body = summary_body(envelope, arrays) if reduced else raw_body(envelope, arrays)
        response = client.post(f"/v1/runs/{run}/batches", content=body, headers=SAFETENSORS)
        if reduced and response.status_code == 422:
            return  # a clamped k3 far beyond its clamp is negative, which no summary may be
        assert response.status_code == 200, response.text
    assert response.json()["complete"] is True
    for reading in READINGS:
        read = client.get(f"/v1/runs/{run}/{reading}")
        assert read.status_code == 200, (reading, read.text)
    assert client.get("/metrics").status_code == 200


ONE = {name: np.full((2, 2), -1.0) for name in ("sampling_logprobs", "old_logprobs", "logprobs")}
BEYOND: list[tuple[dict[str, Any], str, str]] = [
    ({"advantages": np.array([1.0, 1.1e100])}, "advantages", "the entry of sequence 1 is beyond 1e+100"),
    ({"advantages": np.array([[1, 1], [1, -1e155]])}, "advantages", "sequence 1, position 1 is beyond 1e+100"),
    ({"advantages": np.array([[1, 1], [np.nan, 1]])}, "advantages", "sequence 1, position 0 is not finite"),
    ({"logprobs": np.array([[-1, -1e101], [-1, -1]])}, "logprobs", "sequence 0, position 1 is beyond 1e+100"),
    ({"rewards": np.array([-1e101, 0.0])}, "rewards", "the entry of sequence 0 is beyond 1e+100"),
    ({"entropy": np.array([[0, 0], [0, 1e101]])}, "entropy", "sequence 1, position 1 is beyond 1e+100"),
    ({"policy_versions": np.array([0, 2**62 + 1])}, "policy_versions", "the entry of sequence 1 is beyond"),
]


@pytest.mark.parametrize(("arrays", "field", "message"), BEYOND)
def test_a_value_beyond_its_bound_is_422_and_names_field_place_and_limit(
    client: Client, arrays: dict[str, Any], field: str, message: str
) -> None:
    body = frame_bytes({"step": 0}, {**ONE, **arrays})
    for url in ("/v1/runs/r/batches", "/v1/evaluate"):
        response = client.post(url, content=body, headers=SAFETENSORS)
        assert response.status_code == 422, response.text
        [error] = response.json()["errors"]
        assert error["field"] == field and message in error["message"]


def test_the_place_of_a_refused_value_counts_what_the_mask_leaves_out(client: Client) -> None:
    advantages = np.array([[1e300, 1.0, 1.0], [1.0, 1e300, 1e300]])
    mask = np.array([[0, 1, 1], [1, 0, 1]], np.uint8)
    columns = {name: np.full((2, 3), -1.0) for name in ONE}
    body = frame_bytes({"step": 0}, {**columns, "advantages": advantages, "mask": mask})
    response = client.post("/v1/evaluate", content=body, headers=SAFETENSORS)
    assert response.json()["errors"][0]["message"] == "the entry of sequence 1, position 2 is beyond 1e+100"


def test_a_policy_version_whose_lag_would_not_fit_64_bits_is_422(client: Client) -> None:
    body = frame_bytes({"step": 0, "policy_version": 2**62 + 1}, ONE)
    response = client.post("/v1/runs/r/batches", content=body, headers=SAFETENSORS)
    assert response.status_code == 422
    assert response.json()["errors"][0]["field"] == "policy_version"


def test_values_outside_of_the_mask_are_not_looked_at(client: Client) -> None:
    advantages, mask = np.array([[1.0, 1e300], [1.0, np.nan]]), np.array([[1, 0], [1, 0]], np.uint8)
    body = frame_bytes({"step": 0}, {**ONE, "advantages": advantages, "mask": mask})
    assert client.post("/v1/runs/r/batches", content=body, headers=SAFETENSORS).status_code == 200
