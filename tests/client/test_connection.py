"""How a body is cut into what is given to the socket, how many packets that is, and what is sent as access token."""

import socket
import threading
from collections.abc import Sequence

import pytest
from offpolicy_monitor.client.config import TOKEN
from offpolicy_monitor.client.connection import PIECE, SHORT, Connection, bearer, in_pieces
from offpolicy_monitor.client.monitor import Monitor
from offpolicy_monitor.errors import ConfigurationError


def test_a_small_body_is_one_piece() -> None:
    assert sizes([b"ab", memoryview(b"cde"), b"f"]) == [6]


@pytest.mark.parametrize(
    ("buffers", "expected"),
    [
        ([SHORT - 1, 1, 1], [SHORT, 1]),
        ([10, PIECE + 5, 10, 20], [10, PIECE, 5, 30]),
        ([PIECE, 2 * PIECE], [PIECE, PIECE, PIECE]),
        ([0, 0], []),
        ([], []),
    ],
)
def test_long_buffers_are_cut_and_short_neighbours_go_together(buffers: list[int], expected: list[int]) -> None:
    assert sizes([bytes(size) for size in buffers]) == expected


def test_what_is_long_is_not_copied() -> None:
    body = bytes(PIECE)
    [piece] = in_pieces([body])
    assert isinstance(piece, memoryview) and piece.obj is body


@pytest.mark.skipif(not hasattr(socket, "TCP_CORK"), reason="the system sends a head by itself")
def test_a_small_request_leaves_as_one_packet() -> None:
    """Head and body are there when the service wakes for the first time."""
    first: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            connected, _ = listening.accept()
            with connected:
                first.append(connected.recv(SHORT))
                connected.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

        answering = threading.Thread(target=answer)
        answering.start()
        connection = Connection(f"http://127.0.0.1:{listening.getsockname()[1]}", 10.0, None)
        try:
            assert connection.exchange("POST", "/v1", [bytes(100), memoryview(bytes(20_000))]).status == 200
        finally:
            connection.close()
            answering.join()
    head, _, body = first[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /v1 ") and body == bytes(20_100)


def test_the_line_break_at_the_end_of_a_file_is_no_part_of_its_token() -> None:
    assert bearer("opm_1_2\n") == bearer(" opm_1_2") == "Bearer opm_1_2"


@pytest.mark.parametrize("token", ["opm_1\r\nX: 2", "opm_1 2", "\u2713opm_1", " "])
def test_what_no_header_may_hold_is_refused_at_once_and_not_repeated(
    monkeypatch: pytest.MonkeyPatch, token: str
) -> None:
    monkeypatch.setenv(TOKEN, token)
    for made in (lambda: Connection("http://127.0.0.1:9", 1.0, token), lambda: Monitor("http://127.0.0.1:9", "r")):
        with pytest.raises(ConfigurationError, match=f"{TOKEN} is no access token") as refused:
            made()
        assert "opm_1" not in str(refused.value) and refused.value.__context__ is None


def sizes(buffers: Sequence[bytes | memoryview]) -> list[int]:
    """The sizes of the pieces, which must be the same bytes."""
    pieces = list(in_pieces(buffers))
    assert b"".join(pieces) == b"".join(buffers)
    return list(map(len, pieces))
