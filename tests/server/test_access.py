"""Who gets in: tokens, their scopes and their runs, on every route and before anything of a request is read."""

import asyncio
import base64
import io
import json
import socket
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.routing import APIRoute
from offpolicy_monitor.access import Scope, made
from offpolicy_monitor.errors import ConfigurationError, Unavailable
from offpolicy_monitor.server.access.doors import DOORS, Doors
from offpolicy_monitor.server.access.keys import Keys
from offpolicy_monitor.server.app import ROUTES
from offpolicy_monitor.server.process import refuse_open
from offpolicy_monitor.settings import Settings
from offpolicy_monitor.store import access as book

from tests.fixtures.application import JSON, Application, Client, batch, database, json_bytes
from tests.fixtures.live import HEAD, answer_of, serving
from tests.fixtures.logs import configured_logs

BATCHES = "/v1/runs/{}/batches"
PREFIX = "urn:offpolicy-monitor:problem:"


def add(folder: Path, *scopes: Scope, runs: str = "*", expires: float | None = None, revoked: bool = False) -> str:
    """The text of a new token in the database of the application in this folder."""
    token, text = made(scopes, runs, "", time.time() - 1000, expires)
    book.enter(database(folder), token)
    if revoked:
        book.revoke(database(folder), [token.id], time.time())
    return text


def bearer(text: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {text}"}


def basic(text: str, user: str = "anybody") -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{text}".encode()).decode()}


def outcome(response: httpx.Response) -> tuple[int, str]:
    """Status, and the kind of problem that a document names."""
    problem = response.headers["content-type"] == "application/problem+json"
    return response.status_code, response.json()["type"].removeprefix(PREFIX) if problem else ""


@pytest.fixture
def closed(tmp_path: Path, migrated_copy: None, application: Application) -> Iterator[tuple[Client, dict[str, str]]]:
    """An application with runs a-1 and b, and tokens by what they are for."""
    texts = {
        "admin": add(tmp_path, "admin"),
        "ingest": add(tmp_path, "ingest", runs="a-*"),
        "read": add(tmp_path, "read", runs="a-*"),
        "reader": add(tmp_path, "read"),
        "expired": add(tmp_path, "admin", expires=time.time() - 1),
        "revoked": add(tmp_path, "admin", revoked=True),
    }
    with application() as client:
        for run in ("a-1", "b"):
            posted = client.post(BATCHES.format(run), json=batch(), headers=bearer(texts["admin"]))
            assert posted.status_code == 200, posted.text
        yield client, texts


def test_every_route_has_a_door_and_every_door_a_route() -> None:
    routes = {(method, route.path) for route in ROUTES if isinstance(route, APIRoute) for method in route.methods or ()}
    assert len(ROUTES) == len(
        {(route.path, *sorted(route.methods or ())) for route in ROUTES if isinstance(route, APIRoute)}
    )
    assert {(door.method, door.path) for door in DOORS} == routes and len(DOORS) == len(routes)
    assert {door.path for door in DOORS if not door.scopes} == {"/healthz", "/readyz"}
    assert all(door.runs == "named" for door in DOORS if "{run}" in door.path)
    stray = APIRoute("/stray", lambda: None, methods=["GET"])
    with pytest.raises(KeyError, match="stray"):
        Doors([*ROUTES, stray])


def filled(path: str) -> str:
    values = {"{run}": "b", "{step}": "7", "{version}": "x", "{name:path}": "y"}
    for name, value in values.items():
        path = path.replace(name, value)
    return path


def test_every_route_refuses_strangers_other_scopes_and_other_runs(closed: tuple[Client, dict[str, str]]) -> None:
    client, texts = closed
    for door in DOORS:
        path, method = filled(door.path), door.method
        if not door.scopes:
            assert client.request(method, path).status_code in (200, 503), path
            continue
        nobody = client.request(method, path)
        assert outcome(nobody) == (401, "token-required"), path
        assert [value.split()[0] for value in nobody.headers.get_list("WWW-Authenticate")] == ["Basic", "Bearer"]
        lacks = "read" if "read" not in door.scopes else "ingest" if "ingest" not in door.scopes else None
        if lacks:
            refused = client.request(method, path, headers=bearer(texts[lacks]))
            assert outcome(refused) == (403, "scope-missing"), path
            assert f"needs scope {' or '.join(door.scopes)}" in refused.json()["detail"]
        if door.runs in ("named", "all"):
            others = "read" if "read" in door.scopes else "ingest"
            if others in door.scopes:
                refused = client.request(method, path, headers=bearer(texts[others]))
                assert outcome(refused) == (403, "run-not-allowed"), path
                assert "a-*" in refused.json()["detail"]
    assert client.get("/v1/runs/b", headers=bearer(texts["admin"])).status_code == 200  # nobody has deleted it


def test_whoever_has_a_token_gets_what_it_is_for(closed: tuple[Client, dict[str, str]]) -> None:
    client, texts = closed
    post, about = BATCHES.format("a-1"), "/v1/runs/a-1"
    allowed: list[tuple[str, str, str, dict[str, Any]]] = [
        ("ingest", "POST", post, {"content": json_bytes(step=8), "headers": JSON}),
        ("ingest", "POST", f"{post}?detail=none", {"content": json_bytes(step=9), "headers": JSON}),
        ("ingest", "GET", about, {}),
        ("ingest", "PATCH", about, {"json": {"profile": "fp8", "labels": {"a": "b"}, "finished": True}}),
        ("read", "GET", about, {}),
        ("read", "GET", "/", {}),
        ("read", "GET", "/runs/a-1", {}),
        ("reader", "GET", "/metrics", {}),
        ("admin", "PATCH", about, {"json": {"methods": ["opsm"]}}),
        ("admin", "POST", "/v1/evaluate", {"content": json_bytes(), "headers": JSON}),
        ("admin", "DELETE", about, {}),
    ]
    for index, (name, method, path, options) in enumerate(allowed):
        way = (bearer, basic)[index % 2]
        headers = {**options.pop("headers", {}), **way(texts[name])}
        answer = client.request(method, path, headers=headers, **options)
        assert answer.status_code in (200, 204), (name, method, path, answer.text)


def test_a_trainer_changes_what_it_says_of_its_run_and_no_more(closed: tuple[Client, dict[str, str]]) -> None:
    client, texts = closed
    with configured_logs("warning", "json", audit := io.StringIO()):
        for field, value in (("methods", None), ("correction", None), ("alerts", {}), ("length_cap", 5)):
            refused = client.request("PATCH", "/v1/runs/a-1", json={field: value}, headers=bearer(texts["ingest"]))
            assert outcome(refused) == (403, "scope-missing") and field in refused.json()["detail"]
    lines = map(json.loads, audit.getvalue().splitlines())
    assert [(line["event"], line["status"], line["run"]) for line in lines] == [("refused", 403, "a-1")] * 4


def test_every_wrong_token_is_answered_alike_and_one_that_is_over_says_so(
    closed: tuple[Client, dict[str, str]],
) -> None:
    client, texts = closed
    right = texts["admin"]
    name = right.split("_")[1]
    unknown = f"opm_{'0' * 12}_{right.split('_')[2]}"
    wrong = [f"opm_{name}_{'0' * 48}", unknown, right[:-1], f"{right}0", right.upper(), "", "x" * 9000]
    sent = [bearer(text) for text in wrong] + [basic(text) for text in wrong]
    sent += [{"Authorization": value} for value in (right, f"Token {right}", "Bearer", "Basic", "Basic YQ==")]
    sent.append(basic("", user=right))
    answers = [client.get("/v1/runs", headers=headers).json() for headers in sent]
    assert {answer.pop("instance") for answer in answers} and answers == [answers[0]] * len(answers)
    assert answers[0]["type"] == PREFIX + "unknown-token"
    assert client.get("/v1/runs", headers=[*bearer(right).items(), *bearer(right).items()]).status_code == 401
    for over in ("expired", "revoked"):
        refused = client.get("/v1/runs", headers=bearer(texts[over]))
        assert outcome(refused) == (401, f"token-{over}")
        wrong_secret = texts[over].rpartition("_")[0] + "_" + "0" * 48
        assert outcome(client.get("/v1/runs", headers=bearer(wrong_secret))) == (401, "unknown-token")


def test_listings_show_the_runs_that_a_token_is_for(closed: tuple[Client, dict[str, str]]) -> None:
    client, texts = closed
    mine, all_ = bearer(texts["read"]), bearer(texts["reader"])
    for query in ("", "?order=worst", "?q=.", "?limit=1"):
        found = client.get(f"/v1/runs{query}", headers=mine).json()
        assert [row["run"] for row in found["runs"]] == ["a-1"] and found["next_cursor"] is None, query
    assert len(client.get("/v1/runs", headers=all_).json()["runs"]) == 2
    for run in ("a-1", "b"):
        far = {"sampling_logprobs": [-9.0, -9.0, -9.0, -9.0, -9.0]}
        for step in range(8, 14):
            client.post(BATCHES.format(run), json=batch(step=step, **far), headers=bearer(texts["admin"]))
    told = {row["run"] for row in client.get("/v1/alerts", headers=all_).json()["alerts"]}
    assert told == {"a-1", "b"}
    assert {row["run"] for row in client.get("/v1/alerts", headers=mine).json()["alerts"]} == {"a-1"}
    for path in ("/v1/alerts", "/v1/events"):
        assert outcome(client.get(f"{path}?run=b", headers=mine)) == (403, "run-not-allowed")
        assert outcome(client.get(f"{path}?run=a-1&run=b", headers=mine)) == (403, "run-not-allowed")


def test_where_there_is_no_route_any_token_is_heard_and_nobody_else(closed: tuple[Client, dict[str, str]]) -> None:
    client, texts = closed
    for method, path, status in (("GET", "/nowhere", 404), ("PUT", "/v1/runs/a-1", 405), ("OPTIONS", "/v1/runs", 405)):
        assert outcome(client.request(method, path)) == (401, "token-required")
        assert client.request(method, path, headers=bearer(texts["read"])).status_code == status
    head = client.request("HEAD", "/v1/runs")
    assert (head.status_code, head.content) == (401, b"")
    assert client.request("HEAD", "/v1/runs", headers=bearer(texts["read"])).status_code == 200


@pytest.mark.parametrize(
    "foreign",
    [
        *(
            {"Origin": origin}
            for origin in ("http://evil.example", "null", "", "http://127.0.0.1:8901", "http://[", "https://m.example",
                           "ftp://127.0.0.1:8900", "//127.0.0.1:8900", "http://x@127.0.0.1:8900")
        ),
        *({"Sec-Fetch-Site": site} for site in ("cross-site", "same-site", "")),
        {"Origin": "http://127.0.0.1:8900", "Sec-Fetch-Site": "cross-site"},
    ],
    ids=str,
)  # fmt: skip
def test_a_page_of_others_changes_nothing_whoever_looks_at_it(client: Client, foreign: dict[str, str]) -> None:
    assert client.post(BATCHES.format("r1"), json=batch()).status_code == 200
    for method, path in (("DELETE", "/v1/runs/r1"), ("PATCH", "/v1/runs/r1"), ("POST", BATCHES.format("r1"))):
        refused = client.request(method, path, content=json_bytes(step=9), headers=JSON | foreign)
        assert outcome(refused) == (403, "foreign-origin"), path
    assert client.get("/v1/runs/r1", headers=foreign).json()["last_step"] == 7


def test_own_pages_change_runs_also_behind_a_proxy(application: Application) -> None:
    with application(public_url="https://m.example:443/x") as client:
        # The last is a proxy that speaks https under a name of OFFPOLICY_TRUSTED_HOSTS alone.
        own = ("http://127.0.0.1:8900", "https://m.example", "https://127.0.0.1:8900")
        for step, origin in enumerate(own):
            headers = {"Origin": origin, "Sec-Fetch-Site": "same-origin"}
            assert client.post(BATCHES.format("r1"), json=batch(step=step), headers=headers).status_code == 200


def test_a_page_in_the_clear_changes_nothing_where_https_is_spoken(application: Application) -> None:
    with application(public_url="https://m.example", trusted_hosts=("m.example",)) as client:
        for url in ("http://m.example", "https://127.0.0.1:8900"):
            for scheme, status in (("http", 403), ("https", 200)):
                origin = {"Origin": f"{scheme}://{url.partition('//')[2]}"}
                answer = client.post(url + BATCHES.format("r1"), json=batch(), headers=origin)
                assert answer.status_code == status, (url, scheme)


def test_the_settings_say_whether_a_token_is_asked_for(
    tmp_path: Path, migrated_copy: None, application: Application
) -> None:
    with application(auth="required") as client:
        assert outcome(client.get("/v1/runs")) == (401, "token-required")
        assert client.get("/healthz").status_code == 200
    with application() as client:
        assert client.get("/v1/runs").status_code == 200
    add(tmp_path, "read", revoked=True)
    with application() as client:  # revoking the last token opens nothing
        assert client.get("/v1/runs").status_code == 401
    with application(auth="off", open_metrics=True) as client:
        assert client.get("/v1/runs").status_code == 200
    with application(open_metrics=True) as client:
        assert client.get("/metrics").status_code == 200
        assert client.get("/v1/runs").status_code == 401


def test_an_address_that_others_reach_is_served_where_a_token_is_asked_for(tmp_path: Path, migrated_copy: None) -> None:
    def settings(**chosen: Any) -> Settings:
        return Settings(database_url=database(tmp_path), **chosen)

    for auth, said in (("auto", "token create"), ("off", "--insecure")):
        with pytest.raises(ConfigurationError, match=said):
            refuse_open(settings(host="0.0.0.0", auth=auth))
    refuse_open(settings(host="127.0.0.1", auth="off"))
    refuse_open(settings(host="0.0.0.0", auth="required"))
    add(tmp_path, "read")
    refuse_open(settings(host="0.0.0.0"))
    with pytest.raises(ConfigurationError, match="OFFPOLICY_AUTH=off"):
        refuse_open(settings(host="0.0.0.0", auth="off"))


def test_nobody_is_let_in_while_it_is_not_known_whether_there_are_tokens() -> None:
    keys, now = Keys("auto", clock=lambda: now), 0.0
    with pytest.raises(Unavailable):
        keys.required()
    assert not keys.required(of_frames=True)
    with pytest.raises(Unavailable):
        Keys("required").required(of_frames=True)
    keys.learn([])
    assert not keys.required() and keys.admits(None)
    token, text = made(["read"], "*", "", 0.0, expires_at=50.0)
    keys.learn([token])
    assert keys.required(of_frames=True) and not keys.admits(None) and keys.admits(token) and keys.proved(text) is token
    now = 50.0
    assert not keys.admits(token)
    keys.learn([])  # a database from before: what asked for tokens goes on
    assert keys.required() and keys.proved(text) is None


def test_last_use_is_noted_lazily(closed: tuple[Client, dict[str, str]], tmp_path: Path) -> None:
    client, texts = closed
    keys = client.app.state.services.keys
    assert set(keys.take_used()) == {texts["admin"].split("_")[1]}
    client.get("/v1/runs/b", headers=bearer(texts["read"]))  # refused: not used
    assert keys.take_used() == {}
    assert all(token.last_used_at is None for token in book.read_all(database(tmp_path)))


def test_a_service_that_ends_writes_down_what_was_used_last(
    tmp_path: Path, migrated_copy: None, application: Application
) -> None:
    text, begun = add(tmp_path, "read"), time.time()
    add(tmp_path, "read")
    with application() as client:
        assert client.get("/v1/runs", headers=bearer(text)).status_code == 200
    used, other = sorted(book.read_all(database(tmp_path)), key=lambda token: token.last_used_at is None)
    assert used.id == text.split("_")[1] and begun <= (used.last_used_at or 0) <= time.time()
    assert other.last_used_at is None


def test_a_use_that_cannot_be_written_down_is_written_the_next_time() -> None:
    now, there, written = 10.0, False, list[dict[str, float]]()
    keys = Keys("required", clock=lambda: now)
    first, second = (made(["read"], "*", "", 0.0)[0] for _ in range(2))

    async def write(used: Mapping[str, float]) -> int:
        if not there:
            keys.used(second)  # meanwhile
            raise Unavailable(503, "store-unavailable", "away")
        written.append(dict(used))
        return len(used)

    keys.used(first)
    keys.used(second)
    now = 20.0
    with pytest.raises(Unavailable):
        asyncio.run(keys.note(write))
    there = True
    assert [asyncio.run(keys.note(write)) for _ in range(2)] == [2, 0]
    assert written == [{first.id: 10.0, second.id: 20.0}]


def test_a_running_service_knows_new_and_revoked_tokens_within_five_seconds_and_ends_their_streams(
    tmp_path: Path, migrated_copy: None, application: Application
) -> None:
    with application() as client:

        def within_five(path: str, status: int, **options: Any) -> None:
            end = time.monotonic() + 5
            while client.get(path, **options).status_code != status:
                assert time.monotonic() < end, f"{path} is not {status}"
                time.sleep(0.05)

        events = client.app.state.services.events
        unasked = client.run(events.listen(None, None, stands=lambda: client.app.state.services.keys.admits(None)))
        text = add(tmp_path, "read", "ingest", runs="a-*")
        within_five("/v1/runs", 401)
        within_five("/v1/runs", 200, headers=bearer(text))

        async def all_of(stream: Any) -> list[bytes]:
            return [frame async for frame in stream]

        # Who came before the first token is asked to come again with one.
        assert client.run(asyncio.wait_for(all_of(unasked), 5))[:1] == [b"retry: 2000\n\n"]
        told = client.app.state.services.keys.proved(text)
        stream = client.run(events.listen(None, None, told.sees, lambda: client.app.state.services.keys.admits(told)))
        assert client.post(BATCHES.format("a-1"), json=batch(), headers=bearer(text)).status_code == 200
        other = made(["ingest"], "*", "", 0.0)[0]
        events.changed("b")
        book.revoke(database(tmp_path), [told.id, other.id], time.time())
        begun = time.monotonic()
        frames = b"".join(client.run(asyncio.wait_for(all_of(stream), 10)))
        assert time.monotonic() - begun < 5
        assert b'"run":"a-1"' in frames and b'"run":"b"' not in frames
        assert outcome(client.get("/v1/runs", headers=bearer(text))) == (401, "token-revoked")


def test_from_outside_nothing_is_read_before_the_token_and_no_secret_is_logged(
    tmp_path: Path, migrated_copy: None
) -> None:
    right, reader = add(tmp_path, "admin"), add(tmp_path, "read", runs="a-*")
    over = add(tmp_path, "read", expires=time.time() - 500)
    near = right[:-1] + ("0" if right[-1] != "0" else "1")
    with serving(tmp_path) as service:

        def asked(
            connection: socket.socket, method: str, path: str, text: str, body: bytes = b"", more: str = ""
        ) -> int:
            head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {text}\r\n{more}"
            connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            return answer_of(connection)[0]

        # One connection, whose requests bring other tokens: each is looked at.
        with service.connect() as connection:
            kind = "Content-Type: application/json\r\n"
            assert asked(connection, "POST", BATCHES.format("b"), right, json_bytes(), kind) == 200
            assert asked(connection, "GET", "/v1/runs/b", reader) == 403
            assert asked(connection, "GET", "/v1/runs/b", near) == 401
            assert asked(connection, "GET", "/v1/runs/b", over) == 401
            assert asked(connection, "GET", "/v1/runs/b", right) == 200
            # In a path, a query, or under another name: nothing of it is repeated.
            assert asked(connection, "GET", f"/v1/runs/{right}", right) == 404
            assert asked(connection, "GET", f"/v1/runs/{right}", near) == 401
            assert asked(connection, "GET", f"/v1/runs?{right}={right}", right) == 422
            assert asked(connection, "GET", "/v1/runs", right, more=f"Host: {right}\r\n") == 400
            assert asked(connection, "PATCH", "/v1/runs/b", right, b'{"finished":true}', kind) == 200
            assert asked(connection, "DELETE", "/v1/runs/b", right, more="Origin: http://evil.example\r\n") == 403
            assert asked(connection, "DELETE", "/v1/runs/b", right) == 204
        # A body that never comes is not waited for.
        with service.connect() as connection:
            connection.sendall(HEAD + b"Content-Length: 200000000\r\n\r\n")
            status, headers, _ = answer_of(connection)
            assert (status, headers["connection"]) == (401, "close")
        assert book.revoke(database(tmp_path), [reader.split("_")[1]], time.time())
        log, end = service.log, time.monotonic() + 5
        while "token revoked" not in log.read_text():
            assert time.monotonic() < end
            time.sleep(0.1)
    lines = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
    audit = [line for line in lines if line["logger"] == "offpolicy_monitor.audit"]
    about = [(line["event"], line.get("status"), line.get("problem"), line["token"]) for line in audit]
    admin, known = right.split("_")[1], reader.split("_")[1]
    assert about == [
        ("refused", 403, "run-not-allowed", known),
        ("refused", 401, "unknown-token", None),
        ("refused", 401, "token-expired", over.split("_")[1]),
        ("refused", 401, "unknown-token", None),
        ("changed", 200, None, admin),
        ("refused", 403, "foreign-origin", None),
        ("changed", 204, None, admin),
        ("refused", 401, "token-required", None),
        ("token revoked, which this service knows now", None, None, known),
    ]
    assert {(line["action"], line["run"], line["client"]) for line in audit if line["event"] == "changed"} == {
        ("PATCH /v1/runs/{run}", "b", "127.0.0.1"),
        ("DELETE /v1/runs/{run}", "b", "127.0.0.1"),
    }
    requests = {line["request_id"] for line in lines if line["event"] == "request"}
    assert all(line["request_id"] in requests for line in audit[:-1])
    secrets = [text.split("_")[2][:12] for text in (right, reader, over, near)]
    assert not any(secret in log.read_text() for secret in secrets)
