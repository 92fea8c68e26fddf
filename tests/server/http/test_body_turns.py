"""In how many turns a body reaches who reads it: a client's packets are gathered, but never for long."""

import asyncio
from typing import Any

import pytest
import uvicorn
from offpolicy_monitor.server.http import connection
from offpolicy_monitor.server.http.connection import PIECE, TOLD_BYTES, TOLD_SECONDS, BoundedProtocol
from offpolicy_monitor.server.http.deadlines import Deadline, Deadlines, deadlines_of
from offpolicy_monitor.settings import Settings
from uvicorn.server import ServerState

HEAD = b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n"


class Socket(asyncio.Transport):
    """Takes everything and says nothing."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def write(self, data: object) -> None: ...
    def writelines(self, list_of_data: object) -> None: ...
    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def close(self) -> None: ...


class Reader:
    """An application that notes what it is told of a body."""

    def __init__(self) -> None:
        self.told: list[bytes] = []
        self.complete = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        more = True
        while more:
            message = await receive()
            self.told.append(message["body"])
            more = message["more_body"]
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})
        self.complete.set()


def connected(reader: Reader) -> BoundedProtocol:
    config = uvicorn.Config(reader, lifespan="off", log_config=None)
    config.load()
    settings, loop = Settings(write_timeout=1.0), asyncio.get_running_loop()
    protocol = BoundedProtocol(config, ServerState(), {}, loop, settings=settings, refused=list[str]().append)
    protocol.connection_made(Socket())
    return protocol


async def arrive(protocol: BoundedProtocol, *packets: bytes) -> None:
    """Each packet in a turn of the loop of its own."""
    for packet in packets:
        protocol.data_received(packet)
        await asyncio.sleep(0)
        await asyncio.sleep(0)


def test_a_small_body_in_many_packets_is_told_of_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "TOLD_SECONDS", 60.0)  # however slow this machine is

    async def scenario() -> list[bytes]:
        reader = Reader()
        protocol = connected(reader)
        await arrive(protocol, HEAD % 700, *[b"x" * 100] * 7)
        await reader.complete.wait()
        protocol.connection_lost(None)
        return reader.told

    assert asyncio.run(scenario()) == [b"x" * 700]


def test_what_came_of_a_slow_body_is_told_of_while_the_rest_is_awaited() -> None:
    async def scenario() -> list[bytes]:
        reader = Reader()
        protocol = connected(reader)
        await arrive(protocol, HEAD % 3, b"a")
        while not reader.told:
            await asyncio.sleep(0.001)
        first = list(reader.told)
        await arrive(protocol, b"bc")
        await reader.complete.wait()
        protocol.connection_lost(None)
        return [*first, b"|", *reader.told]

    assert asyncio.run(asyncio.wait_for(scenario(), 10)) == [b"a", b"|", b"a", b"bc"]


def test_a_large_body_is_told_of_as_it_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "TOLD_SECONDS", 60.0)  # however slow this machine is

    async def scenario() -> list[int]:
        reader = Reader()
        protocol = connected(reader)
        await arrive(protocol, HEAD % (3 * TOLD_BYTES), *[b"x" * (TOLD_BYTES // 4)] * 12)
        await reader.complete.wait()
        protocol.connection_lost(None)
        return [len(piece) for piece in reader.told]

    told = asyncio.run(scenario())
    assert sum(told) == 3 * TOLD_BYTES
    assert told[:3] == [TOLD_BYTES] * 3


@pytest.mark.parametrize("size", [1, PIECE, 5 * TOLD_BYTES])
def test_a_body_that_is_all_there_is_parsed_and_told_of_once(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed = list[int]()
    on_body = BoundedProtocol.on_body

    def noted(protocol: BoundedProtocol, body: bytes) -> None:
        parsed.append(len(body))
        on_body(protocol, body)

    monkeypatch.setattr(BoundedProtocol, "on_body", noted)

    async def scenario() -> list[int]:
        reader = Reader()
        protocol = connected(reader)
        request = HEAD % size + b"x" * size
        await arrive(protocol, request + request)  # the next one is behind it in the same packet
        while sum(map(len, reader.told)) < 2 * size:
            await asyncio.sleep(0.001)
        protocol.connection_lost(None)
        return [len(piece) for piece in reader.told]

    assert asyncio.run(asyncio.wait_for(scenario(), 10)) == [size, size]
    assert sum(parsed) == 2 * size
    assert len(parsed) <= 4, "the rest of a body, beside what came with its head, is one piece"


def timers(deadlines: Deadlines, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds of each deadline that begins from now on."""
    found, call_later = list[float](), deadlines.call_later

    def noted(seconds: float, *call: Any) -> Deadline:
        found.append(seconds)
        return call_later(seconds, *call)

    monkeypatch.setattr(deadlines, "call_later", noted)
    return found


def test_only_a_head_or_a_body_that_is_still_to_come_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> list[list[float]]:
        deadlines, told = deadlines_of(asyncio.get_running_loop()), list[list[float]]()
        reader = Reader()
        protocol = connected(reader)
        for packets in ([HEAD % 1 + b"x"], [HEAD[:9], HEAD[9:] % 1 + b"x"], [HEAD % 2 + b"x", b"x"]):
            set_here = timers(deadlines, monkeypatch)
            reader.complete.clear()
            await arrive(protocol, *packets)
            await reader.complete.wait()
            monkeypatch.undo()
            told.append([seconds for seconds in set_here if seconds in (Settings().head_timeout, TOLD_SECONDS)])
        protocol.connection_lost(None)
        return told

    assert asyncio.run(scenario()) == [[], [Settings().head_timeout], [TOLD_SECONDS]]
