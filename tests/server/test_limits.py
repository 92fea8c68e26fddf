"""Each limit that a request can be over: what is refused says its field, the limit, and the setting that raises it."""

import dataclasses
import gzip
import json
import re
import time
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from offpolicy_monitor.settings import Settings

from tests.fixtures.application import JSON, SAFETENSORS, Application, frame_bytes, json_bytes, rows, started
from tests.fixtures.live import HEAD, Service, answer_of, serving
from tests.fixtures.reduced import arrays_of, envelope_of, summary_body

PAGE = (Path(__file__).parents[2] / "docs" / "reliability.md").read_text()
BATCHES, EVALUATE, RUN = "/v1/runs/r1/batches", "/v1/evaluate", "/v1/runs/r1"
FIVE = {"old_logprobs": np.zeros(5, np.float32), "logprobs": np.zeros(5, np.float32), "lengths": np.array([5])}
TWO_GAPS = {name: array for name, array in arrays_of(1, 2, 5).items() if name in ("old_logprobs", "logprobs")}


@dataclass(frozen=True)
class Over:
    """A limit, what is over it, and how that is refused."""

    setting: str
    limit: int
    status: int
    kind: str
    field: str
    body: bytes
    headers: Mapping[str, str] = dataclasses.field(default_factory=lambda: JSON)
    url: str = BATCHES
    method: str = "POST"


def evaluation(**fields: Any) -> bytes:
    return json.dumps({**json.loads(json_bytes(step=None)), **fields}).encode()


GZIP = {**JSON, "Content-Encoding": "gzip"}
METHODS = ["opsm", "tis_token"]
SUMMARY = summary_body(envelope_of(0, 1), TWO_GAPS)
OVER = [
    Over("max_body_bytes", 50, 413, "too-large", "body", json_bytes()),
    Over("max_decoded_bytes", 50, 413, "too-large", "body", gzip.compress(json_bytes()), GZIP),
    Over("max_decoded_ratio", 2, 413, "too-large", "body", gzip.compress(bytes(65 << 20)), GZIP),
    Over("max_json_bytes", 50, 413, "too-large", "body", json_bytes()),
    Over("max_json_lists", 3, 422, "over-limit", "body", json_bytes()),
    Over("decoding_bytes", 500, 413, "too-large", "body", json_bytes()),
    Over("max_frame_header_bytes", 50, 413, "too-large", "header", frame_bytes({"step": 7}, FIVE), SAFETENSORS),
    Over("max_tensors", 2, 422, "over-limit", "tensors", frame_bytes({"step": 7}, FIVE), SAFETENSORS),
    Over("max_tokens", 4, 422, "over-limit", "sampling_logprobs", json_bytes()),
    Over("max_sequences", 1, 422, "over-limit", "lengths", json_bytes()),
    Over("max_sequence_length", 2, 422, "over-limit", "lengths", json_bytes()),
    Over("max_label_length", 3, 422, "over-limit", "labels", json_bytes(labels={"gpu": "h100"})),
    Over("max_label_length", 3, 422, "over-limit", "labels", b'{"labels": {"gpu": "h100"}}', url=RUN, method="PATCH"),
    Over("max_sequence_id_length", 3, 422, "over-limit", "sequence_ids", json_bytes(sequence_ids=["abcd", "e"])),
    Over("max_methods", 1, 422, "over-limit", "methods", evaluation(methods=[{"method": "opsm"}] * 2), url=EVALUATE),
    Over("max_evaluate_row_tokens", 5, 413, "too-large", "methods", evaluation(), url=EVALUATE),
    Over("evaluate_bytes", 5, 413, "too-large", "methods", evaluation(), url=EVALUATE),
    Over("max_run_methods", 1, 422, "over-limit", "methods", json.dumps({"methods": METHODS}).encode(), url=RUN,
         method="PATCH"),
    Over("max_change_bytes", 50, 413, "too-large", "body", b'{"profile": "fp8"' + b" " * 50 + b"}", url=RUN,
         method="PATCH"),
    Over("max_whatif_points", 1, 422, "over-limit", "threshold", b"",
         url=f"{RUN}/whatif?method=m2po&threshold=1&threshold=2", method="GET"),
    Over("max_summary_bytes", 500, 413, "too-large", "summary", SUMMARY, SAFETENSORS),
    Over("max_summary_tables", 5, 422, "invalid-field", "summary.tables", SUMMARY, SAFETENSORS),
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, migrated_file: Path) -> Path:
    """With a database in which the run is stored."""
    made = tmp_path_factory.mktemp("stored")
    with started(made, migrated_file) as client:
        assert client.post(BATCHES, content=json_bytes(step=1), headers=JSON).status_code == 200
    return made


@pytest.mark.parametrize("over", OVER, ids=[f"{over.setting} {over.method}" for over in OVER])
def test_what_is_over_a_limit_is_told_its_field_the_limit_and_the_setting(
    over: Over, folder: Path, migrated_file: Path
) -> None:
    before = rows(folder)
    with started(folder, migrated_file, **{over.setting: over.limit}) as client:
        refused = client.request(over.method, over.url, content=over.body, headers=over.headers)
    problem = refused.json()
    assert (refused.status_code, problem["type"].rpartition(":")[2]) == (over.status, over.kind), problem
    assert [error["field"] for error in problem["errors"]] == [over.field]
    assert re.search(rf"over the limit of {over.limit}\b", problem["detail"]), problem["detail"]
    assert f"raise {Settings.variable(over.setting)} " in problem["detail"]
    assert rows(folder) == before


def test_a_body_at_its_limit_is_taken(application: Application) -> None:
    body = json_bytes()
    with application(max_body_bytes=len(body), max_tokens=5, max_sequences=2, max_json_lists=6) as client:
        assert client.post(BATCHES, content=body, headers=JSON).status_code == 200


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Small bounds of a connection."""
    bounds = {"HEAD_BYTES": "5000", "LISTENERS": "1"}
    named = {f"OFFPOLICY_MAX_{name}": value for name, value in bounds.items()}
    folder = tmp_path_factory.mktemp("limits")
    with serving(folder, **named, OFFPOLICY_HEAD_TIMEOUT="0.7", OFFPOLICY_KEEP_ALIVE="1") as running:
        yield running


def scraped(service: Service) -> str:
    with urllib.request.urlopen(f"{service.url}/metrics", timeout=30) as answer:
        return str(answer.read().decode())


def refusals(service: Service, kind: str) -> int:
    """How many of this kind are counted."""
    found = re.search(rf'offpolicy_rejected_requests_total{{reason="{kind}"}} (\d+)', scraped(service))
    return int(found[1]) if found else 0


@pytest.mark.parametrize(("size", "status"), [(4000, 200), (5000, 431), (50_000, 431)])
def test_the_head_is_bounded_by_its_setting(service: Service, size: int, status: int) -> None:
    before = refusals(service, "head-too-large")
    with service.connect() as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Long: " + b"a" * size + b"\r\n\r\n")
        answered, _, body = answer_of(connection)
    assert answered == status
    assert (b"limit of 5000 bytes; raise OFFPOLICY_MAX_HEAD_BYTES" in body) == (status == 431)
    assert refusals(service, "head-too-large") - before == (status == 431)


def test_bytes_that_are_no_http_are_counted(service: Service) -> None:
    before = refusals(service, "not-http")
    with service.connect() as connection:
        connection.sendall(b"\x16\x03\x01\r\n\r\n")
        assert answer_of(connection)[0] == 400
    assert refusals(service, "not-http") == before + 1


def test_a_url_that_no_parser_takes_is_431_whatever_the_setting(tmp_path: Path) -> None:
    with serving(tmp_path, OFFPOLICY_MAX_HEAD_BYTES="1000000") as service:
        for size, status in ((65_000, 404), (66_000, 431)):
            with service.connect() as connection:
                connection.sendall(b"GET /" + b"a" * size + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
                answered, _, body = answer_of(connection)
            assert (answered, b"65535 bytes" in body) == (status, status == 431)


def test_a_head_that_does_not_arrive_in_time_is_408_and_counted(service: Service) -> None:
    before, began = refusals(service, "head-timeout"), time.monotonic()
    with service.connect() as connection:
        connection.sendall(HEAD)
        status, headers, body = answer_of(connection)
    assert (status, headers["connection"]) == (408, "close")
    assert b"within 0.7 s; OFFPOLICY_HEAD_TIMEOUT sets the limit" in body
    assert 0.6 < time.monotonic() - began < 10
    assert refusals(service, "head-timeout") == before + 1


def test_an_idle_connection_ends_after_its_setting_without_a_word(service: Service) -> None:
    with service.connect() as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert answer_of(connection)[0] == 200
        began = time.monotonic()
        assert connection.recv(1) == b""
        assert 0.5 < time.monotonic() - began < 10


def test_a_listener_too_many_is_told_what_allows_more(service: Service) -> None:
    events = b"GET /v1/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    with service.connect() as first, service.connect() as second:
        first.sendall(events)
        assert first.recv(1000).startswith(b"HTTP/1.1 200")
        second.sendall(events)
        status, _, body = answer_of(second)
    assert (status, b"all 1 streams" in body, b"raise OFFPOLICY_MAX_LISTENERS" in body) == (503, True, True)


def test_the_page_lists_every_limit() -> None:
    table = PAGE.partition("## Limits")[2].partition("\n## ")[0]
    kinds = r"max_|_bytes$|_timeout$|_wait$|_per_second$|_per_hour$|_burst$|_ttl$|^keep_alive$"
    limits = {name for name in Settings.model_fields if re.search(kinds, name)}
    listed = {name.lower() for name in re.findall(r"`OFFPOLICY_(\w+)`", table)}
    assert listed >= limits, limits - listed
    assert listed <= Settings.model_fields.keys()
