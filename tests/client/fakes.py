"""Services that misbehave, on real sockets: scripted answers, late ones, and a socket that never reads."""

import json
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from offpolicy_monitor.wire.frame import Frame, decode

ACCEPTED = {"duplicate": False, "stored": True}


@dataclass(frozen=True)
class Said:
    """One answer: a status, its document and headers, after `delay` seconds.

    `cut` closes the connection without any of it, `cut_off` after what there is of it.
    """

    status: int = 200
    document: Mapping[str, object] = field(default_factory=lambda: dict(ACCEPTED))
    headers: Mapping[str, str] = field(default_factory=dict)
    delay: float = 0.0
    cut: bool = False
    cut_off: bool = False


@dataclass(frozen=True)
class Asked:
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    at: float


@dataclass
class Fake:
    """Answers posts with `script`, one after the other, and then for good with `rest`."""

    script: list[Said] = field(default_factory=list)
    rest: Said = field(default_factory=Said)
    run: Mapping[str, object] | None = None
    keep: bool = True
    url: str = ""
    asked: list[Asked] = field(default_factory=list)

    def posts(self) -> list[Asked]:
        return [asked for asked in self.asked if asked.method == "POST"]

    def frames(self) -> list[Frame]:
        return [decode(memoryview(asked.body), 1 << 20, 32) for asked in self.posts()]

    def steps(self) -> list[object]:
        return [frame.envelope["step"] for frame in self.frames()]

    def answer(self, asked: Asked) -> Said:
        if self.keep:
            self.asked.append(asked)
        if asked.method == "GET":
            return Said(404, {}) if self.run is None else Said(200, self.run)
        if asked.method == "PATCH":
            return Said(200, {})
        return self.script.pop(0) if self.script else self.rest


@contextmanager
def serving(fake: Fake) -> Iterator[Fake]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            said = fake.answer(Asked(self.command, self.path, dict(self.headers), body, time.monotonic()))
            time.sleep(said.delay)
            if said.cut:
                self.close_connection = True
                return
            text = json.dumps(said.document).encode()
            self.send_response(said.status)
            for name, value in {"Content-Length": str(len(text)), **said.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(text)
            self.close_connection = said.cut_off

        do_GET = do_POST = do_PATCH = any

        def handle(self) -> None:
            with suppress(ConnectionError):  # the client gave up waiting, as it should
                super().handle()

        def log_message(self, format: str, *args: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        block_on_close = False

    server = Server(("127.0.0.1", 0), Handler)
    fake.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield fake
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def endless(piece: bytes, pause: float) -> Iterator[tuple[str, list[int]]]:
    """An address whose answers go on for ever, a piece every `pause` seconds; and how many bytes each answer had."""
    ended = threading.Event()
    sent: list[int] = []

    def answer(connection: socket.socket, place: int) -> None:
        with connection, suppress(OSError):
            connection.recv(1 << 20)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000000\r\n\r\n")
            while not ended.wait(pause):
                connection.sendall(piece)
                sent[place] += len(piece)

    def accept() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listening.accept()
                sent.append(0)
                threading.Thread(target=answer, args=(connection, len(sent) - 1), daemon=True).start()

    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(64)
        threading.Thread(target=accept, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}", sent
        finally:
            ended.set()
            listening.shutdown(socket.SHUT_RDWR)


@contextmanager
def black_hole() -> Iterator[str]:
    """An address that takes connections and never reads from them, as a stopped process does."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(64)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
