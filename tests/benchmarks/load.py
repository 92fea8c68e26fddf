"""The client of the benchmarks: http.client on connections that stay open, one thread each.

It posts what it is given, in the pieces in which Monitor sends a body, and fails on any answer but 200. Knows nothing
of what the bodies mean.
"""

import http.client
import math
import queue
import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

from offpolicy_monitor.client.connection import send

from tests.benchmarks.body import Body

TIMEOUT = 120.0
KEPT_OPEN = 2.0  # seconds without a request after which a server may have closed a connection


class Load:
    """`connections` requests in flight to one URL path."""

    def __init__(self, url: str, path: str, connections: int) -> None:
        self._path = path
        self._connections = [
            http.client.HTTPConnection(urlsplit(url).netloc, timeout=TIMEOUT) for _ in range(connections)
        ]
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
        done = [
            self._threads.submit(self._post_all_from, start, connection, waiting) for connection in self._connections
        ]
        start.wait()
        began = time.perf_counter()
        for future in done:
            future.result()
        self._last = time.monotonic()
        return time.perf_counter() - began

    def _alone(self, waiting: "queue.SimpleQueue[Body]") -> float:
        """The same over one connection: no other thread is to be woken for a post, or told that it is over."""
        began = time.perf_counter()
        self._post_all(self._connections[0], waiting)
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

    def _post_all_from(
        self, start: threading.Barrier, connection: http.client.HTTPConnection, waiting: "queue.SimpleQueue[Body]"
    ) -> None:
        start.wait()
        self._post_all(connection, waiting)

    def _post_all(self, connection: http.client.HTTPConnection, waiting: "queue.SimpleQueue[Body]") -> None:
        while True:
            try:
                body = waiting.get_nowait()
            except queue.Empty:
                return
            self._post(connection, body)

    def _post(self, connection: http.client.HTTPConnection, body: Body) -> None:
        headers = {"Content-Type": body.media_type, "Content-Length": str(body.nbytes)}
        send(connection, "POST", self._path, body.buffers, headers)
        answer = connection.getresponse()
        text = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"POST {self._path} answered {answer.status}: {text[:500]!r}")
