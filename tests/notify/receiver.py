"""A receiver of webhooks on a real port, which can refuse, be slow, or be away, and keeps what it was sent."""

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import orjson


@dataclass(frozen=True)
class Received:
    """One request: its headers, its bytes, and the status it was answered with."""

    headers: Mapping[str, str]
    body: bytes
    status: int

    @property
    def json(self) -> Any:
        return orjson.loads(self.body)


@dataclass
class Receiver:
    """What to answer next, and what came. `statuses` are used up one a request; then it is 200."""

    url: str = ""
    statuses: list[int] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    received: list[Received] = field(default_factory=list)
    free: threading.Event = field(default_factory=threading.Event)

    @property
    def taken(self) -> list[Any]:
        """The bodies that were answered with success."""
        return [request.json for request in self.received if request.status < 300]

    def wait_for(self, taken: int, within: float = 10.0) -> list[Any]:
        """The bodies taken, once there are as many."""
        eventually(lambda: len(self.taken) >= taken, within)
        return self.taken


def eventually(true: Any, within: float = 10.0) -> None:
    """Return when it is true; fail where it does not become so in time."""
    deadline = time.monotonic() + within
    while not true():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


@contextmanager
def receiving(receiver: Receiver | None = None, port: int = 0, hanging: bool = False) -> Iterator[Receiver]:
    """Listen until the end of the block; `hanging` answers nothing before that."""
    found = receiver or Receiver()
    if not hanging:
        found.free.set()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            found.free.wait()
            status = found.statuses.pop(0) if found.statuses else 200
            found.received.append(Received(dict(self.headers), body, status))
            self.send_response(status)
            for name, value in found.headers.items() if status != 200 else ():
                self.send_header(name, value)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing on stderr."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    found.url = f"http://127.0.0.1:{server.server_port}/hook"
    try:
        yield found
    finally:
        found.free.set()
        server.shutdown()
        thread.join()
        server.server_close()
