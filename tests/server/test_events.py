"""Server-sent events: told after the commit, in order, to whoever listens, and to nobody's cost."""

import asyncio
import json
import socket
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from offpolicy_monitor.errors import Unavailable
from offpolicy_monitor.server import events as module
from offpolicy_monitor.server.events import MOST_WAITING, RESET, Events
from offpolicy_monitor.store import Receipt

from tests.fixtures.application import JSON, Client, json_bytes
from tests.fixtures.live import Service, serving
from tests.fixtures.shards import make_record, make_summary

RETRY = b"retry: 2000\n\n"


def receipt(*alerts: dict[str, Any], completed: bool = True, duplicate: bool = False) -> Receipt:
    return Receipt(duplicate, 1, 1, True, completed, make_summary(0), "warn", alerts)


def alert(name: str, state: str = "active", severity: str = "warning", number: int = 7) -> dict[str, Any]:
    return {"id": number, "alert": name, "severity": severity, "state": state, "since_step": 3}


def parsed(frame: bytes) -> tuple[str, Any]:
    """Kind and data of a frame."""
    lines = dict(line.split(": ", 1) for line in frame.decode().strip().splitlines())
    return lines["event"], json.loads(lines["data"])


def on_a_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 20))


async def settled() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def taken(stream: Any, count: int) -> list[bytes]:
    return [await anext(stream) for _ in range(count)]


def tell(events: Events, step: int, *alerts: dict[str, Any], run: str = "r1", **more: Any) -> None:
    events.stored([make_record(step, run=run)], [receipt(*alerts, **more)])


def test_a_step_is_told_with_its_verdict_and_a_new_run_before_it() -> None:
    async def test() -> None:
        events = Events(2)
        stream = await events.listen(None, None)
        tell(events, 5)
        tell(events, 6)
        tell(events, 7, completed=False)
        tell(events, 7, duplicate=True)
        await settled()
        first, *frames = await taken(stream, 4)
        assert first == RETRY
        step = {"run": "r1", "minibatch": 0, "verdict": "warn"}
        assert list(map(parsed, frames)) == [
            ("run", {"run": "r1"}), ("step", {**step, "step": 5}), ("step", {**step, "step": 6}),
        ]  # fmt: skip
        assert [frame.split(b"\n")[0].split(b"-")[1] for frame in frames] == [b"1", b"2", b"3"]
        events.close()
        with pytest.raises(StopAsyncIteration):
            await anext(stream)

    on_a_loop(test)


def test_an_alert_is_told_when_it_is_another_one_and_when_it_is_over() -> None:
    async def test() -> None:
        events = Events(2)
        stream = await events.listen("r1", None)
        for alerts in (
            [alert("A", "pending")], [alert("A", "pending")], [alert("A"), alert("B", "pending", number=8)],
            [alert("A", severity="critical", number=9)], [],
        ):  # fmt: skip
            tell(events, 1, *alerts, completed=False)
        tell(events, 1, alert("A"), run="r2")
        await settled()
        events.close()
        told = []
        # What had been sent before the end is dropped with it, so the frames are read off what is kept.
        for event in events._kept:
            if event.run == "r1":
                told.append(parsed(event.frame))
        assert [(data["alert"], data["severity"], data["state"]) for kind, data in told if kind == "alert"] == [
            ("A", "warning", "pending"), ("A", "warning", "active"), ("B", "warning", "pending"),
            ("A", "critical", "active"), ("B", "warning", "dropped"), ("A", "critical", "resolved"),
        ]  # fmt: skip
        await stream.aclose()

    on_a_loop(test)


def test_a_listener_to_one_run_hears_of_no_other_but_of_all_at_once() -> None:
    async def test() -> None:
        events = Events(2)
        stream = await events.listen("r1", None)
        tell(events, 1, run="r2")
        events.changed("r2", deleted=True)
        events.changed(None)
        events.changed("r1")
        await settled()
        frames = await taken(stream, 3)
        assert list(map(parsed, frames[1:])) == [("run", {"run": None}), ("run", {"run": "r1"})]
        await stream.aclose()

    on_a_loop(test)


def test_who_comes_back_is_told_what_was_missed_and_else_to_read_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_KEPT", 8)

    async def test() -> None:
        events = Events(2)
        stream = await events.listen(None, None)
        tell(events, 1)
        await settled()
        seen = (await taken(stream, 3))[-1].split(b"\n")[0].removeprefix(b"id: ").decode()
        await stream.aclose()
        tell(events, 2)
        await settled()
        again = await events.listen(None, seen)
        assert [parsed(frame)[1]["step"] for frame in (await taken(again, 2))[1:]] == [2]
        await again.aclose()
        for step in range(3, 20):
            tell(events, step)
        await settled()
        for unknown in (seen, "", "nonsense", "00000000-1", f"{seen.split('-')[0]}-999", f"{seen.split('-')[0]}-x"):
            late = await events.listen(None, unknown)
            assert (await taken(late, 2))[1] == RESET, unknown
            await late.aclose()

    on_a_loop(test)


def test_with_nobody_listening_nothing_is_collected_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "COLLECTED_FOR", 0.01)

    async def test() -> None:
        events = Events(2)
        tell(events, 1)
        await settled()
        assert not events._kept
        stream = await events.listen(None, None)
        tell(events, 2)
        await settled()
        last = events._kept[-1].frame.split(b"\n")[0].removeprefix(b"id: ").decode()
        await anext(stream)
        await stream.aclose()
        await asyncio.sleep(0.05)
        tell(events, 3)
        await settled()
        assert not events._kept and not events._alerts
        again = await events.listen(None, last)
        assert (await taken(again, 2))[1] == RESET
        await again.aclose()

    on_a_loop(test)


def test_one_who_falls_behind_is_dropped_and_the_others_hear_all() -> None:
    async def test() -> None:
        events = Events(2)
        slow, fast = await events.listen(None, None), await events.listen(None, None)
        await anext(slow)
        await anext(fast)
        heard = 0
        for step in range(MOST_WAITING + 10):
            tell(events, step)
            await settled()
            heard += len(await taken(fast, 2 if step == 0 else 1))
        with pytest.raises(StopAsyncIteration):
            await anext(slow)
        assert heard == MOST_WAITING + 11
        await fast.aclose()

    on_a_loop(test)


def test_silence_is_filled_with_comments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HEARTBEAT_SECONDS", 0.01)

    async def test() -> None:
        events = Events(1)
        stream = await events.listen(None, None)
        assert (await taken(stream, 3))[1:] == [b": alive\n\n"] * 2
        await stream.aclose()

    on_a_loop(test)


def test_no_more_than_so_many_listen_at_once() -> None:
    async def test() -> None:
        events = Events(1)
        stream = await events.listen(None, None)
        with pytest.raises(Unavailable) as caught:
            await events.listen(None, None)
        assert (caught.value.status, caught.value.kind) == (503, "too-many-listeners")
        await anext(stream)
        await stream.aclose()
        stream = await events.listen(None, None)
        events.close()
        with pytest.raises(Unavailable) as caught:
            await events.listen(None, None)
        assert caught.value.kind == "stopping"
        await stream.aclose()

    on_a_loop(test)


@pytest.mark.parametrize(
    "request_, field", [("?run=a/b", "run"), ("?runs=a", "runs"), ("", "Last-Event-ID")], ids=["name", "unknown", "id"]
)
def test_a_wrong_question_is_422_and_names_the_field(client: Client, request_: str, field: str) -> None:
    headers = {"Last-Event-ID": "x" * 65} if field == "Last-Event-ID" else {}
    response = client.get(f"/v1/events{request_}", headers=headers)
    assert response.status_code == 422
    assert [error["field"] for error in response.json()["errors"]] == [field]


def test_head_answers_without_a_stream(client: Client) -> None:
    response = client.request("HEAD", "/v1/events")
    assert (response.status_code, response.content) == (200, b"")
    assert response.headers["content-type"].startswith("text/event-stream")


def listen(service: Service, query: str = "", *headers: str) -> socket.socket:
    stream = service.connect()
    lines = "".join(f"{header}\r\n" for header in headers)
    stream.sendall(f"GET /v1/events{query} HTTP/1.1\r\nHost: 127.0.0.1\r\n{lines}\r\n".encode())
    return stream


def read_until(stream: socket.socket, wanted: bytes) -> bytes:
    found = b""
    while wanted not in found:
        piece = stream.recv(1 << 16)
        assert piece, f"the stream ended after {found!r}"
        found += piece
    return found


def test_a_served_stream_tells_of_what_is_posted_patched_and_deleted_and_ends_with_the_service(tmp_path: Path) -> None:
    with serving(tmp_path) as service, listen(service) as stream, listen(service, "?run=r2"):
        head = read_until(stream, b"retry")
        assert b"200 OK" in head and b"text/event-stream" in head and b"no-store" in head
        service.post(json_bytes(step=1, minibatches=1))
        found = read_until(stream, b'"step":1')
        assert b"event: run" in found
        service.post(json_bytes(step=2, minibatches=1))
        read_until(stream, b'"step":2')
        service.process.terminate()
        began = time.monotonic()
        while stream.recv(1 << 16):
            pass
        assert time.monotonic() - began < 3
        service.process.wait(10)
        assert time.monotonic() - began < 8


def test_a_listener_that_reads_nothing_slows_no_post(tmp_path: Path) -> None:
    with serving(tmp_path, OFFPOLICY_WRITE_TIMEOUT="1") as service, listen(service) as idle, listen(service) as reader:
        idle.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        read_until(reader, b"retry")
        for step in range(40):
            status, _ = service.post(json_bytes(step=step, minibatches=1))
            assert status == 200
        read_until(reader, b'"step":39')


def test_patch_and_delete_are_told(client: Client) -> None:
    events = client.app.state.services.events
    stream = client.run(events.listen("r1", None))
    client.post("/v1/runs/r1/batches", content=json_bytes(minibatches=1), headers=JSON)
    client.request("PATCH", "/v1/runs/r1", content=b'{"labels": {"a": "b"}}', headers=JSON)
    client.request("DELETE", "/v1/runs/r1")

    async def read() -> list[bytes]:
        found: list[bytes] = []
        while not found or b"deleted" not in found[-1]:
            found.append(await anext(stream))
        await stream.aclose()
        return found

    told = [parsed(frame) for frame in client.run(read())[1:]]
    assert [kind for kind, _ in told if kind != "alert"] == ["run", "step", "run", "run"]
    assert told[-1] == ("run", {"run": "r1", "deleted": True})
