"""However long and however many the wrong things in a request are, the answer to it is a few KB that names them."""

import json
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fixtures.application import BATCH, JSON, SAFETENSORS, Client, frame_bytes, good_frame, json_bytes

LARGEST_ANSWER = 16 << 10
LONG = "x" * 300_000
TEXTS = st.sampled_from(
    [LONG, "\x00" * 3000, '"' * 3000, "\\" * 3000, "\u65e5" * 3000, "\U0001f600" * 3000, "\x7f", ""]
)
MANY = {f"{index}{LONG[:60]}": 1 for index in range(5000)}


@pytest.fixture
def client(shared_client: Client) -> Client:
    """One for all tests: of run r nothing is stored but the good batch."""
    return shared_client


def small(response: httpx.Response) -> dict[str, Any]:
    assert 400 <= response.status_code < 500, response.text[:300]
    assert len(response.content) < LARGEST_ANSWER
    assert response.headers["Content-Type"] == "application/problem+json"
    problem: dict[str, Any] = response.json()
    return problem


EVALUATED: dict[str, dict[str, Any]] = {
    "the method of a row": {"methods": [{"method": LONG}]},
    "a method that is a list": {"methods": [{"method": [LONG] * 9}]},
    "a parameter of a row": {"methods": [{"method": "opsm", LONG: 1}]},
    "the gap of a row": {"methods": [{"method": "opsm", "delta": 1, "gap": LONG}]},
    "an unknown field": {LONG: 1},
    "unknown fields": MANY,
    "a label": {"labels": {LONG: "x", "y": LONG}},
    "labels of another type": {"labels": MANY},
    "a label's name in a message": {"labels": {LONG: 1}},
    "sequence ids": {"sequence_ids": [LONG, LONG]},
    "ids of another type": {"sequence_ids": [1] * 9999},
    "a rollout": {"rollout": LONG},
    "rows of another type": {"methods": [LONG] * 3},
    "entries": {"logprobs": [LONG, {LONG: LONG}]},
}


@pytest.mark.parametrize("changes", EVALUATED.values(), ids=EVALUATED)
def test_a_body_that_is_wrong_at_length_is_refused_in_a_few_kilobytes(client: Client, changes: dict[str, Any]) -> None:
    for url in ("/v1/evaluate", "/v1/runs/r/batches"):
        small(client.post(url, content=json_bytes(**changes), headers=JSON))
        envelope = {name: value for name, value in changes.items() if name != "logprobs"}
        if envelope:
            small(client.post(url, content=good_frame(**envelope), headers=SAFETENSORS))


@pytest.mark.parametrize(
    "changes",
    [
        {"methods": [LONG[:60_000]]},
        {"methods": [{"method": LONG[:60_000]}]},
        {"correction": LONG[:60_000]},
        {"alerts": {LONG[:60_000]: {}}},
        {"alerts": {"MismatchKL": {LONG[:60_000]: 1}}},
        {"alerts": {str(index): 1 for index in range(5000)}},
        {"labels": {LONG[:60_000]: "x"}},
        {LONG[:60_000]: 1},
        {str(index): 1 for index in range(5000)},
    ],
)
def test_a_patch_that_is_wrong_at_length_is_refused_in_a_few_kilobytes(client: Client, changes: dict[str, Any]) -> None:
    assert client.post("/v1/runs/r/batches", content=json_bytes(), headers=JSON).status_code == 200
    small(client.request("PATCH", "/v1/runs/r", content=json.dumps(changes), headers=JSON))


@pytest.mark.parametrize(
    "url",
    [
        f"/v1/runs?{LONG[:50_000]}=1",
        "/v1/runs?" + "&".join(f"p{index}=1" for index in range(5000)),
        f"/v1/runs?cursor={LONG[:50_000]}",
        f"/v1/runs?limit={LONG[:50_000]}",
        f"/v1/runs/{LONG[:50_000]}",
        f"/v1/runs/r/steps/{LONG[:50_000]}",
        f"/v1/runs/r/series?field={LONG[:50_000]}",
        f"/v1/runs/r/whatif?method={LONG[:50_000]}",
        f"/v1/runs/r/whatif?method=mask&level={LONG[:50_000]}",
        "/v1/runs/r/whatif?method=opsm" + "&threshold=x" * 3000,
        f"/v1/evaluate/{LONG[:50_000]}",
        "/v1/runs?cursor=" + quote("\x00\ud800".encode("utf-8", "surrogatepass") * 3000),
    ],
)
def test_a_query_that_is_wrong_at_length_is_refused_in_a_few_kilobytes(client: Client, url: str) -> None:
    client.post("/v1/runs/r/batches", content=json_bytes(), headers=JSON)
    small(client.get(url))


def test_what_is_quoted_is_cut_and_what_helps_is_whole(client: Client) -> None:
    body = json_bytes(methods=[{"method": "opsm", "delta": 1, "y" * 9000: 1}])
    [error] = small(client.post("/v1/evaluate", content=body, headers=JSON))["errors"]
    assert error["field"] == "methods[0]." + "y" * 61 + "..."
    assert error["message"].endswith("it has delta, gap, level, method, name")


def test_of_many_fields_at_fault_the_first_are_named(client: Client) -> None:
    problem = small(client.post("/v1/evaluate", content=json_bytes(**MANY), headers=JSON))
    assert 8 <= len(problem["errors"]) <= 32
    assert problem["errors"][0]["message"] == "unknown field"


JUNK = st.recursive(
    TEXTS | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.none() | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    names=st.lists(TEXTS | st.sampled_from([*BATCH, "labels", "methods", "sequence_ids"]), min_size=1, max_size=4),
    value=JUNK,
)
def test_no_answer_to_a_hostile_body_is_large(client: Client, names: list[str], value: Any) -> None:
    bodies = [(json.dumps({**BATCH, **dict.fromkeys(names, value)}).encode(), JSON)]
    bodies += [(frame_bytes(dict.fromkeys(names, value), {"x": [1.0]}), SAFETENSORS)]
    for body, headers in bodies:
        for url in ("/v1/evaluate", "/v1/runs/hostile/batches"):
            response = client.post(url, content=body, headers=headers)
            assert response.status_code < 500, response.text[:300]
            assert len(response.content) < LARGEST_ANSWER or response.status_code == 200
