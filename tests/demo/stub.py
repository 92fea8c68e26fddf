"""StubService: a real HTTP server on a thread that stands where the service would, and keeps what it was sent."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ANSWER = {"gaps": {"mismatch": {"k3": 0.001}, "staleness": {"k3": 0.002}}}


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    media_type: str | None
    body: bytes


@dataclass
class StubService:
    url: str = ""
    status: int = 200
    answer: dict[str, object] = field(default_factory=lambda: dict(ANSWER))
    close_after_answer: bool = False
    hold: threading.Event | None = None
    requests: list[Request] = field(default_factory=list)

    def bodies(self) -> list[bytes]:
        return [request.body for request in self.requests if request.method == "POST"]

    def handle(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
        self.requests.append(Request(handler.command, handler.path, handler.headers.get("Content-Type"), body))
        if self.hold and handler.command == "POST":
            self.hold.wait(10)
        text = json.dumps(self.answer).encode()
        handler.send_response(200 if handler.path == "/healthz" else self.status)
        handler.send_header("Content-Length", str(len(text)))
        handler.end_headers()
        handler.wfile.write(text)
        # Says nothing of closing, as a server does whose keep-alive time has run out.
        handler.close_connection = handler.close_connection or self.close_after_answer


@contextmanager
def serve(stub: StubService) -> Iterator[StubService]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self) -> None:
            stub.handle(self)

        do_GET = do_POST = do_PATCH = handle_any

        def log_message(self, format: str, *args: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        block_on_close = False

    server = Server(("127.0.0.1", 0), Handler)
    stub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield stub
    finally:
        if stub.hold:
            stub.hold.set()
        server.shutdown()
        server.server_close()
        thread.join()


def unused_url() -> str:
    """An address on which nothing listens: bound once, and given back."""
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        return f"http://127.0.0.1:{server.server_address[1]}"
