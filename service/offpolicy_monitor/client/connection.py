"""Connection: one keep-alive connection to the service, by the standard library's HTTP.

Buffers go to the socket as they are, without being joined. Whatever fails on the way raises OSError; what it means is
the caller's business. Knows addresses and HTTP, and nothing of what is sent. HTTP is imported when it is first used.
"""

import contextlib
import json
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult

from offpolicy_monitor._version import __version__
from offpolicy_monitor.addresses import parts_of
from offpolicy_monitor.client.proxies import Proxy, proxy_for
from offpolicy_monitor.errors import ConfigurationError, quotable

if TYPE_CHECKING:
    from http.client import HTTPConnection, HTTPResponse
    from socket import socket

JSON = "application/json"
#: What a problem document's `instance` begins with.
REQUEST = "urn:offpolicy-monitor:request:"
# The timeout is that of one piece: a large body may take long, but not stand still for long.
PIECE = 1 << 20
#: Buffers that fit into so many bytes together are sent as one: a copy takes less than to wake the service again.
SHORT = 1 << 18


@dataclass(frozen=True)
class Answer:
    """Status, headers that matter, and the decoded JSON object, empty where the answer was none."""

    status: int
    retry_after: str | None
    document: Mapping[str, Any]
    request_id: str | None = None

    @property
    def kind(self) -> str:
        """The kind of a problem document; empty for other answers."""
        return str(self.document.get("type", "")).rpartition(":")[2]

    @property
    def detail(self) -> str:
        """What a problem document says, after the status; then the request's id, by which the service's log has it."""
        return self.named(f"{self.status} {self.document.get('detail') or self.document.get('title') or ''}".rstrip())

    def named(self, said: str) -> str:
        """The same, and the request's id where the answer has one: a problem document's, else that of its header."""
        _, _, found = str(self.document.get("instance", "")).partition(REQUEST)
        request = quotable(found or self.request_id or "")
        return f"{said} (request {request})" if request else said


#: What children hold of connections of their parents.
_OF_PARENTS: "list[HTTPConnection]" = []


class Connection:
    """A service at `url`, connected when first used. Raises ConfigurationError for what is no address."""

    def __init__(self, url: str, timeout: float, token: str | None) -> None:
        self._parts = parse(url)
        self._timeout = timeout
        self._headers = {"User-Agent": f"offpolicy-monitor/{__version__}", "Accept": JSON}
        if token:
            self._headers["Authorization"] = bearer(token)
        self._prefix = self._parts.path.rstrip("/")
        self._connection: HTTPConnection | None = None
        self._aborted = False

    def exchange(
        self,
        method: str,
        path: str,
        body: Iterable[bytes | memoryview] = (),
        media_type: str = JSON,
        patience: float | None = None,
        most: int | None = None,
    ) -> Answer:
        """Send a request and read its answer, whatever its status.

        A kept connection that the service has closed meanwhile is replaced before use. An answer that comes before the
        body is through (413) is read all the same. `patience` stands for the connection's time-out once it is
        connected: a busy service accepts at once and answers late. With `most`, an answer of more bytes raises, and one
        that takes longer than `patience` from its head to its end.
        """
        patience = self._timeout if patience is None else patience
        pieces = list(body)
        headers = dict(self._headers)
        if pieces:
            headers |= {"Content-Type": media_type, "Content-Length": str(sum(memoryview(p).nbytes for p in pieces))}
        connection = self._open()
        try:
            self._connect(connection, patience)
            try:
                send(connection, method, self._prefix + path, pieces, headers)
            except (BrokenPipeError, ConnectionResetError):
                answer = self._read(connection, patience, most)
                self.close()
                return answer
            return self._read(connection, patience, most)
        except Exception as error:  # http.client raises ValueError and others for a broken answer
            self.close()
            if isinstance(error, OSError):
                raise
            raise ConnectionError(f"{type(error).__name__}: {error}") from error

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def leave_to_parent(self) -> None:
        """In a child after a fork: close its descriptor, and no more; the parent's stays open.

        A thread that is not here may hold the lock of what reads an answer, so that it is neither closed nor let go.
        """
        connection, self._connection = self._connection, None
        if connection is not None:
            _OF_PARENTS.append(connection)
            if connection.sock is not None and (descriptor := connection.sock.detach()) >= 0:
                os.close(descriptor)

    def abort(self) -> None:
        """End the request that another thread is waiting for: its `exchange` raises, and so does every later one."""
        from socket import SHUT_RDWR

        self._aborted = True
        sock = getattr(self._connection, "sock", None)  # asked once: the other thread may close it just now
        if sock is not None:
            with contextlib.suppress(OSError):  # it was not connected (any more)
                sock.shutdown(SHUT_RDWR)

    def _open(self) -> "HTTPConnection":
        if self._connection is not None and _has_ended(self._connection):
            self.close()
        if self._connection is None:
            host = self._parts.hostname or ""
            self._connection = self._made(host, proxy_for(self._parts.scheme, host))
        return self._connection

    def _connect(self, connection: "HTTPConnection", patience: float) -> None:
        if connection.sock is None:
            try:
                connection.connect()
            except OSError as error:
                raise _explained(error) from error
        connection.sock.settimeout(patience)  # pyrefly: ignore[missing-attribute]
        if self._aborted:
            raise ConnectionAbortedError("given up")

    def _made(self, host: str, proxy: Proxy | None) -> "HTTPConnection":
        from http.client import HTTPConnection, HTTPSConnection

        make = HTTPSConnection if self._parts.scheme == "https" else HTTPConnection
        if proxy is None:
            return make(host, self._parts.port, timeout=self._timeout)
        connection = make(proxy.host, proxy.port, timeout=self._timeout)
        if self._parts.scheme == "https":
            connection.set_tunnel(host, self._parts.port, proxy.headers)
        else:
            self._prefix = f"http://{self._parts.netloc}{self._parts.path.rstrip('/')}"
            self._headers |= proxy.headers
        return connection

    @staticmethod
    def _read(connection: "HTTPConnection", patience: float, most: int | None) -> Answer:
        response = connection.getresponse()
        text = response.read() if most is None else _bounded(response, patience, most)
        header = response.getheader
        return Answer(response.status, header("Retry-After"), _document(text), header("X-Request-Id"))


def send(
    connection: "HTTPConnection", method: str, path: str, body: Sequence[bytes | memoryview], headers: Mapping[str, str]
) -> None:
    """Send a request over a connection that is open: a small one as one packet, which wakes the service once.

    http.client sends the head by itself, and the service would wait for the body where it has just woken for the head.
    """
    with _together(connection.sock):
        connection.request(method, path, in_pieces(body) if body else None, headers)


@contextlib.contextmanager
def _together(sock: "socket") -> Iterator[None]:
    """What is sent meanwhile leaves in full packets, what is short of one at the end, where the system can do so."""
    import socket

    cork: int | None = getattr(socket, "TCP_CORK", None)  # Linux's

    def hold(on: bool) -> None:
        if cork is not None:
            with contextlib.suppress(OSError):  # closed meanwhile, or a system that has the name alone
                sock.setsockopt(socket.IPPROTO_TCP, cork, on)

    hold(True)
    try:
        yield
    finally:
        hold(False)


def parse(url: str) -> SplitResult:
    """The parts of a service's address. Raises ConfigurationError for what is none."""
    try:
        return parts_of(url)
    except ValueError as error:
        raise ConfigurationError(f"{url!r} is no address: it {error}") from error


def bearer(token: str) -> str:
    """The header that an access token is sent in, without the line break at the end of the file that it was read from.

    ConfigurationError for what is none, which it does not repeat: http.client would, and the trainer's log with it.
    """
    if not re.fullmatch("[!-~]+", token.strip()):
        raise ConfigurationError("OFFPOLICY_TOKEN is no access token: one is opm_<id>_<secret>, in one piece")
    return f"Bearer {token.strip()}"


def in_pieces(buffers: Iterable[bytes | memoryview]) -> Iterator[bytearray | memoryview]:
    """The buffers in pieces of at most PIECE bytes: views of long ones, and short neighbours together.

    Each piece is a packet of its own, which wakes the service: a small body in six takes both sides longer than a copy.
    """
    short = bytearray()
    for buffer in buffers:
        view = memoryview(buffer).cast("B")
        if len(short) + len(view) <= SHORT:
            short += view
            continue
        if short:
            yield short
            short = bytearray()
        yield from (view[start : start + PIECE] for start in range(0, len(view), PIECE))
    if short:
        yield short


def _bounded(response: "HTTPResponse", patience: float, most: int) -> bytes:
    """The body of an answer. ConnectionError past `most` bytes or where it is cut off, TimeoutError past `patience`."""
    pieces, size, end = [], 0, time.monotonic() + patience
    while piece := response.read1(PIECE):
        pieces.append(piece)
        size += len(piece)
        if size > most:
            raise ConnectionError(f"an answer of more than {most} bytes")
        if time.monotonic() > end:
            raise TimeoutError(f"an answer that is not over after {patience:g} s")
    if response.length:
        raise ConnectionError(f"an answer that is cut off, {response.length} bytes before its end")
    response.read()  # nothing is left; http.client has to know
    return b"".join(pieces)


def _explained(error: OSError) -> OSError:
    """The error, with what to do where it is about trust."""
    message = getattr(error, "verify_message", None)
    if message is None:
        return error
    return ConnectionError(f"its certificate is not trusted ({message}); SSL_CERT_FILE names a private authority's")


def _document(text: bytes) -> Mapping[str, Any]:
    try:
        document = json.loads(text)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def _has_ended(connection: "HTTPConnection") -> bool:
    """Whether an idle connection has something to read: its end, for nothing was asked."""
    if connection.sock is None:
        return False  # http.client opens a new one
    from select import POLLIN, poll

    idle = poll()
    idle.register(connection.sock, POLLIN)
    return bool(idle.poll(0))
