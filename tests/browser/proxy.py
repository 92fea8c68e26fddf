"""A reverse proxy that serves one service below a path, as a team's gateway does, and nothing else."""

import http.client
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

#: Headers of one connection, which a proxy does not hand on.
OF_A_CONNECTION: Final = {"connection", "transfer-encoding", "keep-alive", "date", "server"}


@contextmanager
def below(prefix: str, port: int) -> Iterator[str]:
    """The URL below which the service on `port` is; `prefix` begins and ends with a slash."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if not self.path.startswith(prefix):
                self.send_error(404)
                return
            upstream = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            try:
                upstream.request("GET", self.path[len(prefix) - 1 :], headers=dict(self.headers))
                hand_on(upstream.getresponse(), self)
            except OSError:
                self.close_connection = True  # the reader is gone, or the service
            finally:
                upstream.close()

        def log_message(self, *_: object) -> None:  # pyrefly: ignore[bad-override]
            """Nothing: what fails is seen in the browser."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}{prefix}"
        finally:
            server.shutdown()


def hand_on(answer: http.client.HTTPResponse, handler: BaseHTTPRequestHandler) -> None:
    """Piece by piece as it comes, since events never end."""
    handler.send_response(answer.status)
    for name, value in answer.getheaders():
        if name.lower() not in OF_A_CONNECTION:
            handler.send_header(name, value)
    handler.end_headers()
    while piece := answer.read1(65536):
        handler.wfile.write(piece)
        handler.wfile.flush()
