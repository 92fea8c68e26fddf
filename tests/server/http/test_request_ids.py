"""One id per request: in the answer's header, in the log's line, in a refusal's document and in a trainer's warning."""

import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from offpolicy_monitor.client.connection import Answer
from offpolicy_monitor.server.app import create_app
from offpolicy_monitor.server.http.request_ids import maker, sent
from offpolicy_monitor.settings import Settings

from tests.fixtures.application import JSON, Client, database, json_bytes, running
from tests.fixtures.logs import configured_logs

POST = "/v1/runs/r1/batches"


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    with configured_logs("debug", "json", stream):
        yield stream


def ids_in(log: io.StringIO) -> list[str]:
    """Of the lines about requests."""
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    return [line["request_id"] for line in lines if line["event"] == "request"]


def test_each_answer_names_its_request_as_the_log_and_the_refusal_do(
    tmp_path: Path, migrated_copy: None, log: io.StringIO
) -> None:
    """Of batches, which have a way of their own, of pages, of unknown paths, of HEAD and of other hosts alike."""
    with running(create_app(Settings(database_url=database(tmp_path), device="cpu"))) as client:
        answers = [
            client.post(POST, content=json_bytes(), headers=JSON),
            client.post(POST, content=b"{", headers=JSON),
            client.get("/v1/runs/none"),
            client.get("/v1/runs?limit=x"),
            client.get("/healthz"),
            client.request("HEAD", "/readyz"),
            client.get("/nothing"),
            client.get("/healthz", headers={"Host": "evil.example"}),
        ]
    ids = [answer.headers["X-Request-Id"] for answer in answers]
    assert [answer.status_code for answer in answers][:5] == [200, 400, 404, 422, 200]
    assert len(set(ids)) == len(ids)
    assert ids_in(log) == ids
    refused = [answer for answer in answers if answer.headers["Content-Type"].endswith("problem+json")]
    assert [answer.status_code for answer in refused] == [400, 404, 422, 404, 421]
    for answer in refused:
        name = answer.headers["X-Request-Id"]
        assert answer.json()["instance"] == f"urn:offpolicy-monitor:request:{name}"
        assert int(answer.headers["Content-Length"]) == len(answer.content)
        seen_by_a_trainer = Answer(answer.status_code, None, answer.json())
        assert seen_by_a_trainer.detail.endswith(f" (request {name})")


@pytest.mark.parametrize("name", ["a", "trace-1.2_3", "0" * 64])
def test_a_client_may_name_its_request(client: Client, name: str) -> None:
    answer = client.get("/v1/runs/none", headers={"X-Request-Id": name})
    assert answer.headers.get_list("X-Request-Id") == [name]
    assert answer.json()["instance"].endswith(f":{name}")


@pytest.mark.parametrize(
    "values", [[b""], [b"-a"], [b"a b"], [b"a\x1b[2J"], [b"<b>"], [b"0" * 65], [b"\xc3\xa9"], [b"a\n"], [b"a", b"b"]]
)
def test_what_is_no_name_is_replaced(values: list[bytes]) -> None:
    assert sent([(b"x-request-id", value) for value in values]) is None
    assert sent([(b"x-other", b"a"), (b"x-request-id", b"a")]) == "a"


def test_no_two_processes_make_the_same_id() -> None:
    one, other = maker(), maker()
    made = [make() for make in (one, other) for _ in range(1000)]
    assert len(set(made)) == len(made)
    assert all(sent([(b"x-request-id", name.encode())]) == name for name in made)


def test_an_answer_without_an_id_is_told_without_one() -> None:
    assert Answer(503, None, {"detail": "busy"}).detail == "503 busy"
    assert Answer(503, None, {"detail": "busy", "instance": "/of/another/program"}).detail == "503 busy"
