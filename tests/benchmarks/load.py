"""The client of the benchmarks: connections that stay open, one thread each.

It posts what it is given, in the pieces in which Monitor sends a body, and fails on any answer but 200. It reads no
more of HTTP than tells that an answer is whole: http.client takes 7 % of a small post for itself. Knows nothing of
what the bodies mean.
"""

import math
import queue
import re
import socket
import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final
from urllib.parse import urlsplit

from offpolicy_monitor.client.connection import in_pieces

from tests.benchmarks.body import Body

TIMEOUT = 120.0
KEPT_OPEN = 2.0  # seconds without a request after which a server may have closed a connection
RECEIVED: Final = 1 << 16  # bytes at once
HEAD_ENDS: Final = b"\r\n\r\n"
LENGTH: Final = re.compile(rb"\r\ncontent-length: *(\d+)\r\n", re.IGNORECASE)
OK: Final = b"HTTP/1.1 200 "


class Load:
    """`connections` requests in flight to one URL path."""

    def __init__(self, url: str, path: str, connections: int) -> None:
        self._connections = [_Connection(urlsplit(url).netloc, path) for _ in range(connections)]
        self._threads = ThreadPoolExecutor(connections)
        self._last = -math.inf  # nothing was sent yet

    def seconds(self, bodies: Iterable[Body]) -> float:
        """Post all bodies, each on the next free connection; the seconds from the first byte to the last answer."""
        waiting: queue.SimpleQueue[Body] = queue.SimpleQueue()
        for body in bodies:
            waiting.put(body)
        if time.monotonic() - self._last > KEPT_OPEN:
            self._connect_again()
        if len(self._connections) == 1:
            return self._alone(waiting)
        start = threading.Barrier(len(self._connections) + 1)
        done = [self._threads.submit(_post_all_from, start, connection, waiting) for connection in self._connections]
        start.wait()
        began = time.perf_counter()
        for future in done:
            future.result()
        self._last = time.monotonic()
        return time.perf_counter() - began

    def _alone(self, waiting: "queue.SimpleQueue[Body]") -> float:
        """The same over one connection: no other thread is to be woken for a post, or told that it is over."""
        began = time.perf_counter()
        _post_all(self._connections[0], waiting)
        self._last = time.monotonic()
        return time.perf_counter() - began

    def _connect_again(self) -> None:
        """Servers close what was idle, and would do so under the first body of a turn."""
        for connection in self._connections:
            connection.close()
            connection.connect()

    def close(self) -> None:
        self._threads.shutdown()
        for connection in self._connections:
            connection.close()


class _Connection:
    """One connection to `netloc`, opened by `connect`."""

    def __init__(self, netloc: str, path: str) -> None:
        self._netloc, self._path = netloc, path
        self._socket = socket.socket()

    def connect(self) -> None:
        host, _, port = self._netloc.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), TIMEOUT)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)

    def close(self) -> None:
        self._socket.close()

    def post(self, body: Body) -> None:
        """Return once the answer is here."""
        lines = (
            f"POST {self._path} HTTP/1.1",
            f"Host: {self._netloc}",
            f"Content-Type: {body.media_type}",
            f"Content-Length: {body.nbytes}",
        )
        self._send(["\r\n".join(lines).encode() + HEAD_ENDS, *in_pieces(body.buffers)])
        answer = self._receive()
        if not answer.startswith(OK):
            raise RuntimeError(f"POST {self._path} answered {answer[:500]!r}")

    def _send(self, pieces: Sequence[bytes | bytearray | memoryview]) -> None:
        """The head leaves with the first piece, in one packet where that is small."""
        head, *rest = pieces
        first = memoryview(rest[0]) if rest else memoryview(b"")
        sent = self._socket.sendmsg([head, first])
        if sent < len(head):
            self._socket.sendall(head[sent:])
        self._socket.sendall(first[max(0, sent - len(head)) :])
        for piece in rest[1:]:
            self._socket.sendall(piece)

    def _receive(self) -> bytes:
        """All of an answer, whose head tells its length."""
        answer, ends = b"", math.inf
        while len(answer) < ends:
            piece = self._socket.recv(RECEIVED)
            if not piece:
                raise ConnectionError(f"the connection has ended after {answer[:500]!r}")
            answer += piece
            head = answer.find(HEAD_ENDS)
            if head >= 0 and ends == math.inf:
                length = LENGTH.search(answer, 0, head + len(HEAD_ENDS))
                if length is None:
                    raise RuntimeError(f"an answer that does not tell its length: {answer[:500]!r}")
                ends = head + len(HEAD_ENDS) + int(length[1])
        return answer


def _post_all_from(start: threading.Barrier, connection: _Connection, waiting: "queue.SimpleQueue[Body]") -> None:
    start.wait()
    _post_all(connection, waiting)


def _post_all(connection: _Connection, waiting: "queue.SimpleQueue[Body]") -> None:
    while True:
        try:
            body = waiting.get_nowait()
        except queue.Empty:
            return
        connection.post(body)
