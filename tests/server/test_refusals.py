"""Every malformed request has its status, a problem document that names the field, and stores nothing."""

import dataclasses
import gzip
import json
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import zstandard

from tests.fixtures.application import (
    JSON,
    SAFETENSORS,
    Application,
    Client,
    frame_bytes,
    good_frame,
    json_bytes,
    rows,
    started,
)

URL = "/v1/runs/r1/batches"
ZSTD = {**JSON, "Content-Encoding": "zstd"}
GZIP = {**JSON, "Content-Encoding": "gzip"}


@dataclass(frozen=True)
class Case:
    """What is sent, the status it must get, and the field that must be named (None: the body as a whole)."""

    id: str
    status: int
    field: str | None
    body: bytes | Callable[[], bytes]
    headers: Mapping[str, str] = dataclasses.field(default_factory=lambda: JSON)
    url: str = URL


def raw_frame(header: bytes, data: bytes = b"") -> bytes:
    return struct.pack("<Q", len(header)) + header + data


def tensor_frame(**tensors: Any) -> bytes:
    """A frame whose header is written by hand, with `step` 7 in its envelope and 8 bytes of data."""
    header = {"__metadata__": {"batch": '{"step": 7}'}, **tensors}
    return raw_frame(json.dumps(header).encode(), bytes(8))


def array(dtype: str, shape: list[int], begin: int, end: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


LOGPROBS = {"sampling_logprobs": np.zeros(5, np.float32), "old_logprobs": np.zeros(5, np.float32)}

CASES = [
    # 400: not parseable
    Case("empty body", 400, None, b""),
    Case("cut off json", 400, None, json_bytes()[:-5]),
    Case("json with NaN", 400, None, b'{"step": 1, "lengths": [1], "logprobs": [NaN], "old_logprobs": [0]}'),
    Case("not utf-8", 400, None, b'{"step": "\xff"}'),
    Case("empty frame", 400, None, b"", SAFETENSORS),
    Case("frame of seven bytes", 400, None, b"1234567", SAFETENSORS),
    Case("frame header longer than the body", 400, None, struct.pack("<Q", 1 << 60) + b"{}", SAFETENSORS),
    Case("frame header that is no json", 400, None, raw_frame(b"nothing!"), SAFETENSORS),
    Case("frame that ends early", 400, None, good_frame()[:-3], SAFETENSORS),
    Case("frame with trailing bytes", 400, None, good_frame() + b"\0\0\0\0", SAFETENSORS),
    Case("tensor beyond the data", 400, None, tensor_frame(logprobs=array("F32", [4], 0, 16)), SAFETENSORS),
    Case("shape and size disagree", 400, None, tensor_frame(logprobs=array("F32", [3], 0, 8)), SAFETENSORS),
    Case("shape of 2^60 by 0", 400, None, tensor_frame(logprobs=array("F32", [1 << 60, 0], 0, 8)), SAFETENSORS),
    Case("negative shape", 400, None, tensor_frame(logprobs=array("F32", [-2], 0, 8)), SAFETENSORS),
    Case("corrupt gzip", 400, None, b"not gzip at all", GZIP),
    Case("corrupt zstd", 400, None, b"not zstd at all", ZSTD),
    Case("cut off zstd", 400, None, zstandard.compress(json_bytes())[:-6], ZSTD),
    # 413: too large once decoded
    Case("zstd bomb", 413, "body", lambda: zstandard.compress(bytes(128 << 20)), ZSTD),
    Case("gzip bomb", 413, "body", lambda: gzip.compress(bytes(128 << 20), 1), GZIP),
    # 415
    Case("no media type", 415, "Content-Type", json_bytes(), {}),
    Case("unknown media type", 415, "Content-Type", json_bytes(), {"Content-Type": "application/x-pickle"}),
    Case("unknown encoding", 415, "Content-Encoding", json_bytes(), {**JSON, "Content-Encoding": "br"}),
    Case("two encodings", 415, "Content-Encoding", json_bytes(), {**JSON, "Content-Encoding": "gzip, zstd"}),
    # 422: the envelope
    Case("no step", 422, "step", json_bytes(step=None)),
    Case("step as text", 422, "step", json_bytes(step="7")),
    Case("step as fraction", 422, "step", json_bytes(step=7.0)),
    Case("step as boolean", 422, "step", json_bytes(step=True)),
    Case("negative step", 422, "step", json_bytes(step=-1)),
    Case("step beyond 64 bits", 422, "step", json_bytes(step=1 << 63)),
    Case("shard out of shards", 422, "shard", json_bytes(shard=2, shards=2)),
    Case("no shards", 422, "shards", json_bytes(shards=0)),
    Case("minibatch out of minibatches", 422, "minibatch", json_bytes(minibatch=4, minibatches=4)),
    Case("negative attempt", 422, "attempt", json_bytes(attempt=-1)),
    Case("nine labels", 422, "labels", json_bytes(labels={f"k{i}": "v" for i in range(9)})),
    Case("long label", 422, "labels", json_bytes(labels={"k": "v" * 65})),
    Case("label that is no text", 422, "labels", json_bytes(labels={"k": 1})),
    Case("label with a line feed", 422, "labels", json_bytes(labels={"k": "a\nb"})),
    Case("sequence ids of another length", 422, "sequence_ids", json_bytes(sequence_ids=["a"])),
    Case("unknown field", 422, "stepp", json_bytes(stepp=1)),
    Case("methods belong to evaluate", 422, "methods", json_bytes(methods=[])),
    Case("list instead of object", 422, None, b"[1, 2]"),
    # 422: the arrays
    Case("one log-prob array", 422, "old_logprobs", json_bytes(old_logprobs=None, logprobs=None)),
    Case("no lengths", 422, "lengths", json_bytes(lengths=None)),
    Case("lengths that do not add up", 422, None, json_bytes(lengths=[3, 3])),
    Case("negative length", 422, "lengths", json_bytes(lengths=[6, -1])),
    Case("fractional length", 422, "lengths", json_bytes(lengths=[2.5, 2.5])),
    Case("log-probs of unequal length", 422, None, json_bytes(logprobs=[-1.0] * 4)),
    Case("text among log-probs", 422, "logprobs", json_bytes(logprobs=[-1.0, "x", -1.0, -1.0, -1.0])),
    Case("mask of another length", 422, "mask", json_bytes(mask=[1, 1])),
    Case("mask of 2", 422, "mask", json_bytes(mask=[1, 1, 2, 1, 1])),
    Case("advantages of another length", 422, "advantages", json_bytes(advantages=[1.0, 2.0, 3.0])),
    Case("null advantage", 422, "advantages", json_bytes(advantages=[None, 1.0])),
    Case("version below -1", 422, "policy_versions", json_bytes(policy_versions=[-2, 0])),
    Case(
        "unknown array", 422, "logits",
        frame_bytes({"step": 7}, {**LOGPROBS, "lengths": [5], "logits": np.zeros(5, np.float32)}), SAFETENSORS,
    ),
    Case(
        "log-probs as integers", 422, "old_logprobs",
        frame_bytes({"step": 7}, {**LOGPROBS, "lengths": [5], "old_logprobs": np.zeros(5, np.int32)}), SAFETENSORS,
    ),
    Case(
        "lengths as floats", 422, "lengths",
        frame_bytes({"step": 7}, {**LOGPROBS, "lengths": np.array([5.0], np.float32)}), SAFETENSORS,
    ),
    Case(
        "infinite advantage", 422, "advantages",
        frame_bytes({"step": 7}, {**LOGPROBS, "lengths": [5], "advantages": np.array([np.inf], np.float32)}),
        SAFETENSORS,
    ),
    Case(
        "log-probs of rank 3", 422, None,
        frame_bytes({"step": 7}, {name: value.reshape(1, 5, 1) for name, value in LOGPROBS.items()}), SAFETENSORS,
    ),
    # 422: the address
    Case("run with a space", 422, "run", json_bytes(), url="/v1/runs/a%20b/batches"),
    Case("run that begins with a dot", 422, "run", json_bytes(), url="/v1/runs/.a/batches"),
    Case("run of 129 characters", 422, "run", json_bytes(), url=f"/v1/runs/{'a' * 129}/batches"),
    Case("run with a line feed", 422, "run", json_bytes(), url="/v1/runs/a%0A/batches"),
    Case("run with markup", 422, "run", json_bytes(), url="/v1/runs/%3Cb%3E/batches"),
    Case("query parameter", 422, "dry_run", json_bytes(), url=f"{URL}?dry_run=1"),
    Case("path that is none", 404, None, json_bytes(), url="/v1/runs/r1/batch"),
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("refusals")


@pytest.fixture(scope="module")
def service(folder: Path, migrated_file: Path) -> Iterator[Client]:
    with started(folder, migrated_file) as running:
        yield running


def assert_problem(response: httpx.Response, status: int, field: str | None) -> None:
    document = response.json()
    assert response.status_code == status, document
    assert response.headers["content-type"] == "application/problem+json"
    assert document["type"].startswith("urn:offpolicy-monitor:problem:")
    assert (document["status"], bool(document["title"]), bool(document["detail"])) == (status, True, True)
    if field is not None:
        assert field in [error["field"] for error in document["errors"]]
        assert all(error["message"] for error in document["errors"])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_a_malformed_batch_is_refused_by_name_and_stores_nothing(case: Case, service: Client, folder: Path) -> None:
    body = case.body() if callable(case.body) else case.body
    response = service.post(case.url, content=body, headers=case.headers)

    assert_problem(response, case.status, case.field)
    assert rows(folder) == {"runs": 0, "shards": 0, "steps": 0, "metrics": 0}


EVALUATE = [
    ("unknown method", "methods[0].method", [{"method": "magic"}], ""),
    ("unknown gap", "methods[0].gap", [{"method": "opsm", "delta": 1, "gap": "both"}], ""),
    ("unknown level", "methods[0].level", [{"method": "mask", "upper": 2, "level": "batch"}], ""),
    ("unknown parameter", "methods[1].alpha", [{"method": "ipo", "threshold": 1}, {"method": "opsm", "alpha": 1}], ""),
    ("threshold missing", "methods[0].delta", [{"method": "opsm"}], ""),
    ("row that is no object", "methods", ["opsm"], ""),
    ("unknown detail", "detail", [], "?detail=all"),
    ("unknown query parameter", "details", [], "?details=none"),
    ("repeated query parameter", "detail", [], "?detail=none&detail=token"),
]


@pytest.mark.parametrize("field, methods, query", [case[1:] for case in EVALUATE], ids=[case[0] for case in EVALUATE])
def test_an_evaluation_that_asks_for_the_unknown_is_422(
    field: str, methods: list[Any], query: str, service: Client
) -> None:
    response = service.post(f"/v1/evaluate{query}", content=json_bytes(methods=methods), headers=JSON)
    assert response.status_code == 422, response.text
    assert any(error["field"].startswith(field) for error in response.json()["errors"]), response.text


def test_the_same_shard_with_other_content_is_409(client: Client, tmp_path: Path) -> None:
    client.post(URL, content=json_bytes(), headers=JSON)
    before = rows(tmp_path)
    assert_problem(client.post(URL, content=json_bytes(advantages=[2.0, 1.0]), headers=JSON), 409, None)
    assert rows(tmp_path) == before


def test_an_older_attempt_is_409(client: Client, tmp_path: Path) -> None:
    client.post(URL, content=json_bytes(attempt=1), headers=JSON)
    before = rows(tmp_path)
    assert_problem(client.post(URL, content=json_bytes(attempt=0), headers=JSON), 409, None)
    assert rows(tmp_path) == before


def test_disagreeing_shards_are_409(client: Client, tmp_path: Path) -> None:
    client.post(URL, content=json_bytes(shard=0, shards=2), headers=JSON)
    before = rows(tmp_path)
    assert_problem(client.post(URL, content=json_bytes(shard=1, shards=3), headers=JSON), 409, None)
    assert rows(tmp_path) == before


LIMITS = [
    ({"max_tokens": 4}, 422),
    ({"max_sequences": 1}, 422),
    ({"max_sequence_length": 2}, 422),
    ({"max_body_bytes": 100}, 413),
    ({"max_json_bytes": 100}, 413),
    ({"max_json_lists": 3}, 422),
]


@pytest.mark.parametrize("limit, status", LIMITS, ids=[next(iter(limit)) for limit, _ in LIMITS])
def test_a_batch_over_a_limit_is_told_the_limit_and_the_setting(
    limit: dict[str, int], status: int, application: Application, tmp_path: Path
) -> None:
    with application(**limit) as client:
        response = client.post(URL, content=json_bytes(), headers=JSON)
    name, most = next(iter(limit.items()))
    assert response.status_code == status, response.text
    assert f"OFFPOLICY_{name.upper()}" in response.json()["detail"]
    assert str(most) in response.json()["detail"]
    assert rows(tmp_path)["shards"] == 0


def test_every_refusal_is_counted_by_its_kind(client: Client) -> None:
    client.post(URL, content=b"{", headers=JSON)
    client.post(URL, content=b"x", headers={"Content-Type": "text/plain"})
    client.get("/nothing/here")
    metrics = client.get("/metrics").text
    for kind in ("malformed-body", "unsupported-media-type", "unknown-path"):
        assert f'offpolicy_rejected_requests_total{{reason="{kind}"}} 1.0' in metrics
    assert "nothing/here" not in metrics


def test_a_wrong_method_is_405_and_says_which_are_allowed(client: Client) -> None:
    response = client.request("PUT", "/v1/runs/r1")
    assert_problem(response, 405, None)
    assert response.headers["allow"] == "DELETE, GET, HEAD, PATCH"
