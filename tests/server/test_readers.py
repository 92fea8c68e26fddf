"""Readers that do not read: what they hold is bounded, they lose it to those that wait, and others are served."""

import asyncio
import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import orjson
import pytest
import uvicorn
from offpolicy_monitor.server.http.connection import BoundedProtocol
from offpolicy_monitor.server.http.room import LARGEST, TAKER_KEY, Taker
from offpolicy_monitor.server.routes.runs import PAGE_BYTES, ROWS_AT_A_TIME, _rendered
from offpolicy_monitor.settings import Settings
from offpolicy_monitor.store.rows.cursors import Page
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from tests.fixtures.application import Application, Client, batch, json_bytes
from tests.fixtures.live import Service, answer_of, serving
from tests.fixtures.prometheus import wait_for

MEBIBYTE = 1 << 20
READERS = 60
STEPS = 60


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A run whose steps are over a MiB, room for a few answers, and a second to take the next piece of one."""
    settings = {"OFFPOLICY_ANSWER_BYTES": str(16 * MEBIBYTE), "OFFPOLICY_WRITE_TIMEOUT": "3"}
    with serving(tmp_path_factory.mktemp("readers"), **settings) as running:
        for step in range(STEPS):
            assert running.post(json_bytes(step=step))[0] == 200
        yield running


def asked(service: Service, path: str) -> tuple[int, bytes]:
    """A request whose answer is read at once."""
    with service.connect() as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        status, _, body = answer_of(connection)
    return status, body


def not_reading(service: Service, path: str) -> socket.socket:
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(30)
    connection.connect(("127.0.0.1", service.port))
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
    return connection


@pytest.mark.parametrize("path", ["/v1/runs/r1/steps?limit=1000", "/metrics"])
def test_readers_that_do_not_read_cost_little_and_delay_nobody_for_long(service: Service, path: str) -> None:
    asked(service, path)
    before = service.at_rest()
    stalled = [not_reading(service, path) for _ in range(READERS)]
    slowest, until = 0.0, time.monotonic() + 5
    while time.monotonic() < until:
        began = time.monotonic()
        assert asked(service, "/healthz")[0] == 200
        slowest = max(slowest, time.monotonic() - began)
        time.sleep(0.05)
    assert slowest < 10
    assert asked(service, path)[0] == 200
    assert service.post(json_bytes(step=STEPS))[0] == 200
    assert service.peak() - before < 80 * MEBIBYTE
    for connection in stalled:
        connection.close()


@contextlib.contextmanager
def protocol(app: ASGIApp, write_timeout: float) -> Iterator[tuple[uvicorn.Server, int]]:
    """An application served by the protocol of the service, and its port."""
    settings = Settings(write_timeout=write_timeout)
    http: Any = partial(BoundedProtocol, settings=settings, refused=list[str]().append)
    server = uvicorn.Server(uvicorn.Config(app, http=http, port=0, loop="uvloop", lifespan="off", log_config=None))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        wait_for(lambda: server.started)
        yield server, server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        thread.join()


def test_a_reader_that_takes_nothing_is_cut_off_after_the_write_timeout() -> None:
    size, took = 64 * MEBIBYTE, list[float]()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        began = time.monotonic()
        await Response(b"x" * size)(scope, receive, send)
        took.append(time.monotonic() - began)

    with protocol(app, write_timeout=1.5) as (server, port):
        with socket.create_connection(("127.0.0.1", port), timeout=30) as reading:
            reading.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert len(answer_of(reading)[2]) == size
        with socket.create_connection(("127.0.0.1", port), timeout=30) as still:
            still.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            wait_for(lambda: len(took) == 2 and not server.server_state.connections)
            taken = 0
            with contextlib.suppress(ConnectionError):
                while piece := still.recv(1 << 20):
                    taken += len(piece)
    assert took[1] > 1.4
    assert taken < size


def test_a_connection_that_ends_while_its_reader_stands_still_is_gone_after_the_write_timeout() -> None:
    """What is left is less than the transport's high-water mark, so that nobody waits for it but the connection."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await Response(b"x" * 40_000, headers={"Connection": "close"})(scope, receive, send)

    with protocol(app, write_timeout=1.5) as (server, port), socket.socket() as still:
        still.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        still.connect(("127.0.0.1", port))
        still.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        wait_for(lambda: server.server_state.total_requests == 1)
        wait_for(lambda: not server.server_state.connections)


def scope(client: Client, path: str, taker: Taker | None) -> dict[str, Any]:
    """A request as uvicorn gives it to the application."""
    head = {"type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "query_string": b""}
    there = {"scheme": "http", "server": ("127.0.0.1", 8900), "client": ("127.0.0.1", 1), "root_path": ""}
    fixed = {"asgi": {"version": "3.0"}, "http_version": "1.1", "headers": [(b"host", b"127.0.0.1")]}
    return {**head, **there, **fixed, **({TAKER_KEY: taker} if taker else {})}


async def nothing_comes() -> dict[str, Any]:
    await asyncio.Event().wait()
    return {}


def test_who_waits_gets_the_room_of_a_reader_that_stands_still(application: Application) -> None:
    with application(answer_bytes=LARGEST, admission_timeout=10) as client:

        async def scenario() -> tuple[int, bool]:
            cut = asyncio.Event()
            taker = Taker(cut.set)

            async def stand_still(message: Any) -> None:
                if message["type"] == "http.response.body":
                    taker.stops()
                    await cut.wait()

            answers = client.app.state.services.answers
            still = asyncio.create_task(client.app(scope(client, "/v1/runs", taker), nothing_comes, stand_still))
            while not 0 < answers.used < LARGEST:
                await asyncio.sleep(0.01)
            response = await client.http.get("/v1/runs")
            await still
            assert answers.used == 0
            return response.status_code, taker.is_cut_off

        assert client.run(scenario()) == (200, True)


def test_where_no_reader_stands_still_who_waits_too_long_is_503(application: Application) -> None:
    with application(answer_bytes=LARGEST, admission_timeout=0.2) as client:

        async def scenario() -> Any:
            async with client.app.state.services.answers.reserve(LARGEST):
                return await client.http.get("/v1/runs"), await client.http.get("/healthz")

        busy, healthy = client.run(scenario())
        assert (busy.status_code, healthy.status_code) == (503, 200)
        assert "OFFPOLICY_ANSWER_BYTES" in busy.json()["detail"]
        assert client.get("/v1/runs").status_code == 200


def test_a_page_of_steps_ends_after_its_bytes_and_the_cursor_goes_on() -> None:
    rows = [{"step": step, "text": "x" * 300_000} for step in range(50)]
    asked_for: list[int] = []

    def read(most: int, cursor: str | None) -> Page:
        asked_for.append(most)
        first = int(cursor or 0)
        found, last = rows[first : first + most], first + most
        return Page(found, str(last) if last < len(rows) else None)

    pages, cursor = [], None
    while True:
        page, cursor = _rendered(read, 1000, cursor)
        pages.append(orjson.dumps(page))
        if cursor is None:
            break
    assert [json.loads(text)[0]["step"] for text in pages] == [0, 20, 40]
    assert [row for text in pages for row in json.loads(text)] == rows
    assert max(map(len, pages)) < PAGE_BYTES + ROWS_AT_A_TIME * 300_100
    assert max(asked_for) == ROWS_AT_A_TIME


def test_a_page_has_as_many_rows_as_are_asked_for(application: Application) -> None:
    with application() as client:
        for step in range(45):
            assert client.post("/v1/runs/r1/batches", json=batch(step=step)).status_code == 200
        for limit, rows, more in ((1, 1, True), (20, 20, True), (44, 44, True), (45, 45, False), (1000, 45, False)):
            page = client.get(f"/v1/runs/r1/steps?limit={limit}").json()
            assert [row["step"] for row in page["steps"]] == list(range(rows))
            assert (page["next_cursor"] is not None) == more
