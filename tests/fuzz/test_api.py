"""Whatever is asked of the API, its answer is one that the OpenAPI document declares, and comes in time."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import httpx
import pytest
from hypothesis import HealthCheck, given, settings

from tests.fixtures.application import JSON, Client, json_bytes, started
from tests.fuzz.api import Api, Call

RUNS, STEPS = ("calm", "wild"), 9
#: What a parameter of that name may have.
KNOWN = {
    "run": RUNS,
    "step": ("0", "8"),
    "field": ("gaps.mismatch.k3", "gaps.mismatch.quantiles.0.99", "methods.tis_token.mask_fraction"),
    "method": ("truncate", "mask", "ppo_clip", "opsm"),
    "gap": ("mismatch", "total"),
    "level": ("token", "sequence"),
    "threshold": ("2", "0.5", "-1"),
    "row": ("tis_token",),
    "q": ("w", "k=v", "^calm$"),
    "target": ("0.1",),
}


def seeded(client: Client) -> None:
    """Two runs of whose alerts some fire, with ids and labels."""
    for step in range(STEPS):
        for index, run in enumerate(RUNS):
            drift = [-0.5 - index * 0.4 * step, -1.25, -0.0625, -2.25 - index * step, -0.75]
            body = json_bytes(step=step, sampling_logprobs=drift, labels={"k": "v"}, sequence_ids=["a", "<b>"])
            assert client.post(f"/v1/runs/{run}/batches", content=body, headers=JSON).status_code == 200


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory, migrated_file: Path) -> Iterator[Client]:
    with started(tmp_path_factory.mktemp("api"), migrated_file, keep_worst=2) as running:
        seeded(running)
        assert running.get("/v1/alerts").json()["alerts"] and running.get("/v1/runs/wild/worst").json()["sequences"]
        yield running


def sender(client: Client) -> Any:
    """Sends calls to the application."""

    def send(call: Call) -> httpx.Response:
        path = call.path
        for name, value in call.values.items():
            path = path.replace(f"{{{name}}}", quote(value, safe="", errors="replace"))
        query = urlencode(call.query, errors="replace")
        headers = {"Content-Type": call.media_type} if call.body is not None else {}
        return client.request(call.method, f"{path}?{query}" if query else path, content=call.body, headers=headers)

    return send


def test_whatever_is_asked_the_answer_is_a_declared_one(client: Client) -> None:
    api, send = Api(client.get("/openapi.json").json(), KNOWN), sender(client)
    statuses = dict[str, set[int]]()
    for method, path in api.operations():

        @settings(max_examples=12, suppress_health_check=list(HealthCheck))
        @given(api.calls(method, path))
        def check(call: Call) -> None:
            statuses.setdefault(call.path, set()).add(api.check(call, send).status_code)

        check()
    assert len(statuses) > 15
    assert [path for path, found in statuses.items() if 200 not in found] in ([], ["/v1/runs/{run}/batches"])


CASES = [
    # A count that is written out: gigabytes, and no other request was answered meanwhile.
    Call("GET", "/v1/runs", query=[("q", "(?:a{9999}){9999}")]),
    Call("GET", "/v1/runs", query=[("q", "a{99999999}")]),
]


@pytest.mark.parametrize("call", CASES, ids=[str(call.query or call.path) for call in CASES])
def test_what_was_answered_wrong_once_is_refused(client: Client, call: Call) -> None:
    api = Api(client.get("/openapi.json").json(), KNOWN)
    assert 400 <= api.check(call, sender(client)).status_code < 500


@pytest.mark.parametrize("pattern", ["[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|calm", "^(?:c.{1,50}|x{9})$"])
def test_a_pattern_with_counts_that_are_of_use_is_searched(client: Client, pattern: str) -> None:
    found = client.get("/v1/runs", params={"q": pattern}).json()["runs"]
    assert [run["run"] for run in found] == ["calm"]


def test_a_step_of_thousands_of_digits_has_no_page(client: Client) -> None:
    for end in ("", ".json"):
        answer = client.get(f"/runs/wild/steps/{'1' * 5000}{end}")
        assert (answer.status_code, answer.json()["type"]) == (404, "urn:offpolicy-monitor:problem:unknown-path")
