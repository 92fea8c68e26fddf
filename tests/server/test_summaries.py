"""Shards that their trainers reduced: they end where raw shards end, and what no batch can have is refused."""

import math
import struct
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from offpolicy_monitor.client.reduce import reduced
from offpolicy_monitor.summary.stored import packed_tree, version_3
from offpolicy_monitor.wire import frame

from tests.fixtures.application import SAFETENSORS, Application, Client, rows
from tests.fixtures.forged import with_headers, with_row
from tests.fixtures.reduced import arrays_of, envelope_of, joined, raw_body, summary_body
from tests.fixtures.zeros import MEBIBYTE, deflated

SHARDS = 3
COUNTS = ("tokens", "sequences", "empty_sequences", "excluded_tokens", "suspect_tokens", "received_shards", "complete")
#: Of an answer, what depends on the clock or the name of the run.
NOT_COMPARED = {
    "run", "id", "started_at", "active_at", "resolved_at", "received_at", "first_received_at", "last_received_at",
}  # fmt: skip


@pytest.fixture
def client(application: Application) -> Iterator[Client]:
    """Measured by torch, as a trainer reduces: figures of the two are the same to the last digits."""
    with application(torch_compile=False) as running:
        yield running


def post(client: Client, run: str, body: bytes) -> Any:
    return client.post(f"/v1/runs/{run}/batches", content=body, headers=SAFETENSORS)


def posted(client: Client, run: str, body: bytes) -> dict[str, Any]:
    response = post(client, run, body)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def refused(client: Client, body: bytes, run: str = "r") -> dict[str, Any]:
    response = post(client, run, body)
    assert response.headers["Content-Type"] == "application/problem+json"
    problem: dict[str, Any] = response.json()
    return problem


def assert_same(found: Any, wanted: Any, path: str = "") -> None:
    """Equal but for the rounding of float64 sums; whole numbers exactly."""
    if isinstance(wanted, dict):
        assert found.keys() == wanted.keys(), path
        for key in wanted.keys() - NOT_COMPARED:
            assert_same(found[key], wanted[key], f"{path}.{key}")
    elif isinstance(wanted, list):
        assert len(found) == len(wanted), path
        for index, (one, other) in enumerate(zip(found, wanted, strict=True)):
            assert_same(one, other, f"{path}[{index}]")
    elif isinstance(wanted, float):
        assert found == pytest.approx(wanted, rel=1e-12, abs=1e-15), path
    else:
        assert found == wanted, path


READINGS = (
    "steps/7", "steps/7/histograms", "steps?from=0", "worst?step=7", "diagnosis", "whatif?method=opsm",
    "whatif?method=mask&level=token", "recommendations?target=0.01", "rules", "series?field=gaps.mismatch.k3",
)  # fmt: skip


@pytest.mark.parametrize("raw", [(), (1,)], ids=["all reduced", "one raw among them"])
def test_a_step_of_summaries_is_the_step_of_its_shards(client: Client, raw: tuple[int, ...]) -> None:
    for shard in range(SHARDS):
        envelope, arrays = envelope_of(shard, SHARDS), arrays_of(shard)
        wanted = posted(client, "raw", raw_body(envelope, arrays))
        body = raw_body(envelope, arrays) if shard in raw else summary_body(envelope, arrays)
        assert_same(posted(client, "reduced", body), wanted)
    for reading in READINGS:
        read = client.get(f"/v1/runs/raw/{reading}")
        assert read.status_code == 200, read.text
        assert_same(client.get(f"/v1/runs/reduced/{reading}").json(), read.json(), reading)
    assert_same(client.get("/v1/alerts?run=reduced").json(), client.get("/v1/alerts?run=raw").json())
    step = client.get("/v1/runs/reduced/steps/7").json()
    assert step["complete"] is True and step["breakdowns"]["label:gpu"].keys() == {"h100%2F0", "h100%2F1", "h100%2F2"}


def test_metrics_count_a_summary_as_the_shard_it_is_of(client: Client) -> None:
    envelope, arrays = envelope_of(0, 1), arrays_of(4)
    posted(client, "raw", raw_body(envelope, arrays))
    posted(client, "reduced", summary_body(envelope, arrays))

    def lines(run: str) -> list[str]:
        found = client.get("/metrics").text.splitlines()
        return sorted(
            line.replace(f'run="{run}"', "") for line in found if f'run="{run}"' in line and "timestamp" not in line
        )

    assert any(line.startswith("offpolicy_token_log_ratio_nats_bucket") for line in lines("raw"))
    for one, other in zip(lines("reduced"), lines("raw"), strict=True):
        assert one.rpartition(" ")[0] == other.rpartition(" ")[0]
        value, wanted = float(one.rpartition(" ")[2]), float(other.rpartition(" ")[2])
        assert value == pytest.approx(wanted, rel=1e-12) or math.isnan(wanted)


def test_the_same_summary_again_is_a_duplicate_and_another_a_conflict(client: Client) -> None:
    envelope, arrays = envelope_of(0, 1), arrays_of(0)
    first = posted(client, "r", summary_body(envelope, arrays))
    again = posted(client, "r", summary_body(envelope, arrays))
    assert (first["duplicate"], again["duplicate"]) == (False, True)
    assert again["gaps"] == first["gaps"]
    assert post(client, "r", summary_body(envelope, arrays_of(1))).status_code == 409
    assert post(client, "r", raw_body(envelope, arrays)).status_code == 409
    assert client.get("/v1/runs/r/steps/7").json()["tokens"] == first["tokens"]


def test_sequence_ids_find_the_worst_again_from_either_place(client: Client) -> None:
    arrays = arrays_of(0)
    envelope = envelope_of(0, 1, sequence_ids=[f"p{i}" for i in range(6)])
    summary = reduced(envelope, arrays)
    without = {name: value for name, value in envelope.items() if name != "sequence_ids"}
    for run, of_body in (("with", envelope), ("without", without)):
        posted(client, run, joined(frame.encode(of_body, summary)))
        found = client.get(f"/v1/runs/{run}/worst?step=7").json()["sequences"]
        assert found and all(sequence["id"] == f"p{sequence['index']}" for sequence in found)


def test_a_summary_of_other_rows_is_refused_by_the_row_and_says_where_the_rows_are(client: Client) -> None:
    envelope, arrays = envelope_of(0, 1), arrays_of(0)
    posted(client, "r", summary_body({**envelope, "step": 6}, arrays))
    rows_wanted = ["grpo", {"name": "tight", "method": "opsm", "delta": 0.002}]
    client.request("PATCH", "/v1/runs/r", json={"methods": rows_wanted})
    problem = refused(client, summary_body(envelope, arrays))
    assert (problem["status"], problem["type"]) == (409, "urn:offpolicy-monitor:problem:methods-changed")
    assert problem["errors"][0]["field"].startswith("summary.methods.")
    assert "GET /v1/runs/{run}" in problem["detail"]
    run = client.get("/v1/runs/r").json()
    answer = posted(client, "r", summary_body(envelope, arrays, run["methods"]))
    assert answer["methods"].keys() == {"grpo", "tight"}
    missing = refused(client, summary_body({**envelope, "step": 8}, arrays, run["methods"][:1]))
    assert missing["errors"][0]["field"] == "summary.methods.tight"


#: Mebibytes of zeros.
ZEROS = 400


def old_bomb() -> bytes:
    """A few kilobytes of version 2 that mean hundreds of megabytes."""
    zeros, small = deflated(ZEROS), zlib.compress(b"[[],{},{}]")
    parts = [small, zeros, *[zlib.compress(bytes(4))] * 2, *[zlib.compress(b"")] * 2]
    return bytes([2]) + packed_tree._LENGTHS.pack(*map(len, parts)) + b"".join(parts)


def bomb(says_its_size: bool) -> bytes:
    """The same of version 3, which may say how many they are."""
    header = struct.pack("<2I", 2, ZEROS << 20) + b"{}"
    stream = zstandard.ZstdCompressor().compressobj(len(header) + (ZEROS << 20) if says_its_size else -1)
    return bytes([3]) + b"".join(map(stream.compress, (header, *[MEBIBYTE] * ZEROS))) + stream.flush()


BOMBS: Mapping[str, tuple[Callable[[], bytes], int]] = {
    "of version 2": (old_bomb, 413),
    "of version 3": (lambda: bomb(True), 413),
    "of no size": (lambda: bomb(False), 422),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_in_under_a_second_of_a_processor(client: Client, name: str) -> None:
    bomb, status = BOMBS[name]
    body = joined(frame.encode(envelope_of(0, 1), {"summary": np.frombuffer(bomb(), np.uint8)}))
    began = time.process_time()
    problem = refused(client, body)
    assert time.process_time() - began < 1
    assert problem["status"] == status
    assert ("OFFPOLICY_MAX_SUMMARY_BYTES" in problem["detail"]) == (status == 413)
    assert problem["errors"][0]["field"] == "summary"


def test_tables_that_would_take_much_memory_are_refused_before_they_are_made(client: Client) -> None:
    keys = ["batch", "routing/total/missing/9999999/2"]
    body = joined(frame.encode(envelope_of(0, 1), {"summary": headed(keys=keys)}))
    assert refused(client, body)["errors"][0]["field"] == "summary.routing/total/missing/9999999/2"


GOOD = reduced(envelope_of(0, 1), arrays_of(0))["summary"]


def altered(name: str, value: float) -> np.ndarray:
    """The good summary with one row changed."""
    return np.frombuffer(with_row(GOOD.tobytes(), name, value), np.uint8)


def headed(**changes: Any) -> np.ndarray:
    """The good summary with other fields in its headers."""

    def change(shape: dict[str, Any], own: dict[str, Any]) -> None:
        for name, value in changes.items():
            (shape if name in shape else own)[name] = value

    return np.frombuffer(with_headers(GOOD.tobytes(), change), np.uint8)


BODIES: Mapping[str, tuple[dict[str, Any], dict[str, np.ndarray], str]] = {
    "nothing": ({}, {"summary": GOOD[:0]}, "summary"),
    "another version": ({}, {"summary": np.concatenate([[1], GOOD[1:]]).astype(np.uint8)}, "summary"),
    "cut off": ({}, {"summary": GOOD[:-1]}, "summary"),
    "another dtype": ({}, {"summary": GOOD.astype(np.int32)}, "summary"),
    "two dimensions": ({}, {"summary": GOOD[:8].reshape(2, 4)}, "summary"),
    "beside tokens": ({}, {"summary": GOOD, "logprobs": np.zeros(2, np.float32)}, "logprobs"),
    "a rollout": ({"rollout": "p"}, {"summary": GOOD}, "rollout"),
    "another shard": ({"shard": 1, "shards": 2}, {"summary": GOOD}, "summary.breakdown/shard/0/mismatch"),
    "other labels": ({"labels": {"gpu": "x"}}, {"summary": GOOD}, "summary.breakdown/label:gpu/h100%2F0/mismatch"),
    "no policy version": ({"policy_version": None}, {"summary": GOOD}, "summary.breakdown/lag/mismatch"),
    "too few ids": ({"sequence_ids": ["a"]}, {"summary": GOOD}, "summary.batch/sequences"),
    "a negative sum": ({}, {"summary": altered("gaps/mismatch/k3", -1.0)}, "summary.gaps/mismatch/k3"),
    "an unknown table": ({}, {"summary": headed(keys=["batch", "shoes"])}, "summary.shoes"),
    "specs in a list": ({}, {"summary": headed(specs=[])}, "summary.specs"),
    "absent without a reason": ({}, {"summary": headed(absent=["gaps/mismatch/k3"])}, "summary.gaps/mismatch/k3"),
    "keys of numbers": ({}, {"summary": headed(keys=[1, 2])}, "summary"),
    "keys of lists": ({}, {"summary": headed(keys=[[1], "batch"])}, "summary"),
    "absent lists": ({}, {"summary": headed(absent=[[]])}, "summary"),
    "columns of objects": ({}, {"summary": headed(columns=[["O", 1]])}, "summary"),
    "columns of no length": ({}, {"summary": headed(columns=[["<f8", -1]])}, "summary"),
}  # fmt: skip


@pytest.mark.parametrize("name", BODIES)
def test_what_is_wrong_is_refused_by_its_path_and_nothing_is_stored(client: Client, tmp_path: Path, name: str) -> None:
    changes, arrays, field = BODIES[name]
    envelope = {key: value for key, value in {**envelope_of(0, 1), **changes}.items() if value is not None}
    problem = refused(client, joined(frame.encode(envelope, arrays)))
    assert problem["status"] == 422
    assert problem["errors"][0]["field"] == field
    assert rows(tmp_path) == {"runs": 0, "shards": 0, "steps": 0, "metrics": 0}


def test_limits_of_raw_bodies_hold_for_summaries_too(application: Application) -> None:
    limits = {"max_tokens": "batch/tokens", "max_sequences": "batch/sequences", "max_summary_tables": "tables"}
    for limit, field in limits.items():
        with application(**{limit: 2}) as client:
            problem = refused(client, summary_body(envelope_of(0, 1), arrays_of(0)))
            assert problem["status"] == 422
            assert problem["errors"][0]["field"] == f"summary.{field}"
            assert f"OFFPOLICY_{limit.upper()}" in problem["detail"]


def test_a_summary_cannot_be_evaluated(client: Client) -> None:
    body = summary_body(envelope_of(0, 1), arrays_of(0))
    response = client.post("/v1/evaluate", content=body, headers=SAFETENSORS)
    assert response.status_code == 422
    assert response.json()["errors"][0]["field"] == "summary"


CONTENT = version_3.content(GOOD.tobytes()[1:])


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_mutated_bytes_are_never_a_defect_and_never_stored_as_nan(client: Client, data: st.DataObject) -> None:
    """One byte, or a few, of the decompressed content: header or columns."""
    content, header = bytearray(CONTENT), 8 + sum(map(len, version_3.headers_of(CONTENT)))
    for _ in range(data.draw(st.integers(1, 3))):
        first, last = data.draw(st.sampled_from([(0, header - 1), (header, len(content) - 1)]))
        content[data.draw(st.integers(first, last))] = data.draw(st.integers(0, 255))
    stored = GOOD[:1].tobytes() + zstandard.compress(bytes(content), 1)
    step = data.draw(st.integers(0, 10**9))
    envelope = envelope_of(0, 1, step=step)
    response = post(client, "r", joined(frame.encode(envelope, {"summary": np.frombuffer(stored, np.uint8)})))
    assert response.status_code in (200, 409, 413, 422), response.text
    if response.status_code == 200:
        found = client.get(f"/v1/runs/r/steps/{step}")
        assert found.status_code == 200
        assert all(map(math.isfinite, numbers(found.json())))


def numbers(value: Any) -> list[float]:
    """All numbers of a JSON value."""
    if isinstance(value, dict | list):
        items = value.values() if isinstance(value, dict) else value
        return [number for item in items for number in numbers(item)]
    return [value] if isinstance(value, int | float) else []
