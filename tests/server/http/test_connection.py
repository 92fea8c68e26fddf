"""What one connection can do to the served process: heads, trailers, pipelines, answers before a body's end."""

import contextlib
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fixtures.application import json_bytes
from tests.fixtures.live import HEAD, Service, answer_of, serving

MEBIBYTE = 1 << 20
GET = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
MANY_TRAILERS = b"X-Trailer: aaaaaaaa\r\n" * 3000
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    limits = {"OFFPOLICY_BODY_TIMEOUT": "1", "OFFPOLICY_WRITE_TIMEOUT": "1"}
    with serving(tmp_path_factory.mktemp("connection"), **limits) as running:
        yield running


def taken(connection: socket.socket, piece: bytes, most: int) -> int:
    """How many bytes the service lets this client send before it ends the connection, at most `most`."""
    sent = 0
    with contextlib.suppress(OSError):
        while sent < most:
            connection.sendall(piece)
            sent += len(piece)
    return sent


def read_to_end(connection: socket.socket) -> bytes:
    """All that the service still sends; it ends the connection, or resets it."""
    received = b""
    with contextlib.suppress(ConnectionError):
        while piece := connection.recv(65_536):
            received += piece
    return received


def sockets_of(service: Service) -> set[str]:
    """The sockets that the process holds."""
    found = set[str]()
    for file in (Path("/proc") / str(service.process.pid) / "fd").iterdir():
        with contextlib.suppress(OSError):
            found.add(file.readlink().name)
    return {name for name in found if name.startswith("socket:")}


@pytest.mark.parametrize(
    "trailer", [b"X-Trailer: aaaaaaaa\r\n" * 3000, b"X-One: " + b"a" * 65_536], ids=["many", "one"]
)
def test_trailers_without_end_are_refused_and_take_no_memory(service: Service, trailer: bytes) -> None:
    before = service.at_rest()
    with service.connect() as connection:
        connection.sendall(CHUNKED + b"1\r\n{\r\n0\r\n" + trailer)
        sent = taken(connection, trailer[-60_000:], 400 * MEBIBYTE)
        answer = read_to_end(connection)
    assert answer.startswith(b"HTTP/1.1 431 ")
    assert b"trailers-too-large" in answer and b"8192 bytes" in answer
    assert sent < 50 * MEBIBYTE
    assert service.peak() - before < 30 * MEBIBYTE


def test_a_few_trailers_are_read_and_ignored(service: Service) -> None:
    body = json_bytes(step=3)
    trailers = b"X-Checksum: 1\r\nContent-Encoding: zstd\r\n"
    with service.connect() as connection:
        for _ in range(2):
            connection.sendall(CHUNKED + b"%x\r\n%s\r\n0\r\n%s\r\n" % (len(body), body, trailers))
            assert answer_of(connection)[0] == 200


@pytest.mark.parametrize("size", [30_000, 60_000])
@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_may_come_long_after_a_large_head(service: Service, size: int, chunked: bool) -> None:
    body = json_bytes(step=4)
    length, sent = b"Content-Length: %d" % len(body), body
    if chunked:
        length, sent = b"Transfer-Encoding: chunked", b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    with service.connect() as connection:
        connection.sendall(HEAD + b"Cookie: " + b"a" * size + b"\r\n" + length + b"\r\n\r\n")
        time.sleep(0.1)
        connection.sendall(sent)
        assert answer_of(connection)[0] == 200


def test_an_answer_that_comes_before_the_end_of_the_body_ends_the_connection(service: Service) -> None:
    before = service.at_rest()
    with service.connect() as connection:
        connection.sendall(HEAD.replace(b"json", b"xml") + b"Content-Length: 200000000\r\n\r\n{")
        status, headers, _ = answer_of(connection)
        sent = taken(connection, b"a" * 65_536, 200 * MEBIBYTE)
    assert (status, headers["connection"]) == (415, "close")
    assert sent < 50 * MEBIBYTE
    assert service.peak() - before < 30 * MEBIBYTE


def test_after_a_408_nothing_more_is_taken(service: Service) -> None:
    before = service.at_rest()
    with service.connect() as connection:
        connection.sendall(CHUNKED + b"1\r\n{\r\n")
        status, headers, _ = answer_of(connection)
        sent = taken(connection, MANY_TRAILERS, 400 * MEBIBYTE)
    assert (status, headers["connection"]) == (408, "close")
    assert sent < 50 * MEBIBYTE
    assert service.peak() - before < 30 * MEBIBYTE


def test_a_client_that_sends_its_whole_body_all_the_same_reads_why_it_was_refused(service: Service) -> None:
    with service.connect() as connection:
        connection.sendall(HEAD.replace(b"json", b"xml") + b"Content-Length: 3000000\r\n\r\n" + b"a" * 3_000_000)
        answer = read_to_end(connection)
    assert answer.startswith(b"HTTP/1.1 415 ")


def test_twenty_thousand_pipelined_requests_are_answered(service: Service) -> None:
    before, requests, answered, left = service.at_rest(), 20_000, 0, b""
    with service.connect() as connection:
        connection.setblocking(False)
        unsent, deadline = memoryview(GET * requests), time.monotonic() + 60
        while answered < requests and time.monotonic() < deadline:
            with contextlib.suppress(BlockingIOError):
                unsent = unsent[connection.send(unsent) :]
            with contextlib.suppress(BlockingIOError):
                left += connection.recv(1 << 20)
            answered += left.count(b"HTTP/1.1 200 OK")
            left = left[-14:]
    assert answered == requests
    assert service.peak() - before < 30 * MEBIBYTE


def test_requests_pipelined_by_a_client_that_reads_no_answer_are_not_taken(service: Service) -> None:
    before = service.at_rest()
    with service.connect() as connection:
        connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" + GET)
        sent = taken_without_reading(connection, GET * 5000, 400 * MEBIBYTE, 3.0)
    assert sent < 100 * MEBIBYTE
    assert service.peak() - before < 60 * MEBIBYTE


def test_who_goes_away_with_requests_behind_the_one_that_is_answered_is_no_defect(service: Service) -> None:
    before = len(sockets_of(service))
    for _ in range(5):
        with socket.socket() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # its end is a reset
            connection.connect(("127.0.0.1", service.port))
            connection.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 40)
            assert connection.recv(4096).startswith(b"HTTP/1.1 200 OK")
    deadline = time.monotonic() + 20
    while len(sockets_of(service)) > before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(sockets_of(service)) <= before
    assert "Traceback" not in service.log.read_text()


def taken_without_reading(connection: socket.socket, piece: bytes, most: int, seconds: float) -> int:
    """How many bytes are taken within some seconds from a client that reads nothing."""
    connection.setblocking(False)
    sent, deadline = 0, time.monotonic() + seconds
    with contextlib.suppress(ConnectionError):
        while sent < most and time.monotonic() < deadline:
            try:
                sent += connection.send(piece)
            except BlockingIOError:
                time.sleep(0.01)
    return sent


@pytest.mark.parametrize("size, status", [(60_000, 404), (70_000, 431), (2_000_000, 431)])
def test_the_url_of_a_request_is_bounded(service: Service, size: int, status: int) -> None:
    with service.connect() as connection:
        connection.sendall(b"GET /" + b"a" * size + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        answered, headers, body = answer_of(connection)
    assert (answered, headers["content-type"]) == (status, "application/problem+json")
    assert (b"65536 bytes" in body) == (status == 431)


def test_idle_connections_make_room_for_new_ones(tmp_path: Path) -> None:
    """Those that say nothing, begin a head, or were answered; one that is in the middle of its body stays."""
    settings = {"OFFPOLICY_MAX_CONNECTIONS": "10", "OFFPOLICY_BODY_IDLE_TIMEOUT": "60"}
    with serving(tmp_path, **settings) as service, contextlib.ExitStack() as stack:
        body = json_bytes(step=5)
        at_work = stack.enter_context(service.connect())
        at_work.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body[:-1])
        for number in range(30):
            connection = stack.enter_context(service.connect())
            connection.sendall((b"", GET[:9], GET)[number % 3])
            if number % 3 == 2:
                assert answer_of(connection)[0] == 200
        for step in range(3):
            assert service.post(json_bytes(step=step))[0] == 200
        assert len(sockets_of(service)) <= 16
        at_work.sendall(body[-1:])
        assert answer_of(at_work)[0] == 200


def test_where_all_connections_are_at_work_the_next_is_503(tmp_path: Path) -> None:
    with serving(tmp_path, OFFPOLICY_MAX_CONNECTIONS="4") as service, contextlib.ExitStack() as stack:
        for _ in range(4):
            stack.enter_context(service.connect()).sendall(HEAD + b"Content-Length: 9\r\n\r\n")
        time.sleep(0.5)
        with service.connect() as refused:
            status, headers, document = answer_of(refused)
    assert (status, headers["connection"], headers["retry-after"]) == (503, "close", "1")
    assert b"too-many-connections" in document


def test_garbage_behind_a_request_does_not_cut_its_answer(service: Service) -> None:
    with service.connect() as connection:
        connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n\x00\x01\x02\r\n\r\n")
        answer = read_to_end(connection)
    assert answer.startswith(b"HTTP/1.1 200 OK")
    assert answer.endswith(b"\n") and answer.count(b"HTTP/1.1 ") == 1


def test_a_body_that_is_not_chunked_as_it_says_is_a_problem_document(service: Service) -> None:
    with service.connect() as connection:
        connection.sendall(CHUNKED + b"1\r\n{\r\nzz\r\n")
        status, headers, body = answer_of(connection)
    assert (status, headers["content-type"]) == (400, "application/problem+json")
    assert b"not-http" in body
