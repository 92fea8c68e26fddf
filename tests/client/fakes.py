"""Services that misbehave, on real sockets: scripted answers, late ones, and a socket that never reads."""

import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from offpolicy_monitor.wire.frame import Frame, decode

from tests.fixtures.http_stub import Asked, Said, answering


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
        if asked.method == "GET" and asked.path != "/healthz":
            return Said(404) if self.run is None else Said(200, self.run)
        if asked.method != "POST":
            return Said()
        return self.script.pop(0) if self.script else self.rest


@contextmanager
def serving(fake: Fake) -> Iterator[Fake]:
    """The fake on a port of its own."""
    with answering(fake.answer) as fake.url:
        yield fake


@contextmanager
def endless(piece: bytes, pause: float) -> Iterator[tuple[str, list[int]]]:
    """An address whose answers go on for ever, a piece every `pause` seconds; and how many bytes each answer had."""
    ended = threading.Event()
    sent: list[int] = []

    def answer(connection: socket.socket, index: int) -> None:
        with connection, suppress(OSError):
            connection.recv(1 << 20)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000000\r\n\r\n")
            while not ended.wait(pause):
                connection.sendall(piece)
                sent[index] += len(piece)

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
