"""The HTTP protocol with the bounds that uvicorn leaves open: of a head, of trailers, of what is pipelined, and of how
long a client may take to send the one and to read its answer.

httptools accepts a head or trailers of any size and waits for ever. Bodies have their own limits (`server.http.body`).
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from offpolicy_monitor.errors import Problem, Refusal, Unavailable
from offpolicy_monitor.server.http.deadlines import Deadline, deadlines_of
from offpolicy_monitor.server.http.pieces import Answering
from offpolicy_monitor.server.http.problems import FAULT_KEY, response_to
from offpolicy_monitor.server.http.room import TAKER_KEY, Taker
from offpolicy_monitor.server.http.transport import BoundedFlow, BoundedTransport
from offpolicy_monitor.settings import Settings

MAX_TRAILER_BYTES: Final = 8 * 1024
#: What the parser of URLs counts bytes in has 16 bits.
MAX_URL_BYTES: Final = (1 << 16) - 1
#: Bytes parsed at a time: what a client has pipelined beyond them is kept as it came until there is nothing to answer.
#: The rest of a body of known length is one piece, as far as it has come.
PIECE: Final = 16 * 1024
#: A body is told of when so much of it has come, or for so long nothing was told, or all is there: a client sends it in
#: many packets, and each time costs a turn of everything that waits for it. One read of a socket may bring as much.
TOLD_BYTES: Final = 256 * 1024
TOLD_SECONDS: Final = 0.002
NOTHING: Final = memoryview(b"")

#: Kind and detail of what a connection is refused for.
TRAILERS_TOO_LARGE: Final = (431, "trailers-too-large", f"over {MAX_TRAILER_BYTES} bytes of trailers; nobody reads any")
URL_TOO_LONG: Final = (431, "head-too-large", f"the URL is over {MAX_URL_BYTES} bytes, and no setting raises that")
NOT_HTTP: Final = (400, "not-http", "what arrived is not HTTP/1.1")


class Shedding:
    """How many connections are to end, each with its next answer: their clients come back to where there is room."""

    def __init__(self) -> None:
        self._left = 0

    def add(self, number: int) -> None:
        """So many more."""
        self._left += number

    def takes(self) -> bool:
        """Whether this one is to end."""
        self._left -= (taken := self._left > 0)
        return taken


SHEDS_NONE: Final = Shedding()


class BoundedProtocol(HttpToolsProtocol):
    """Answers 431 to a head over `max_head_bytes` and to trailers over MAX_TRAILER_BYTES, and ends the connection.

    It ends as well where a head takes longer than `head_timeout` seconds (408 where some of it came), where the answer
    comes before the body's end, and where the client takes nothing of its answer for `write_timeout` seconds. Of more
    than `max_connections` those that are idle end, the longest first. `refused` is told the kind of what is refused
    before it is a request.
    """

    def __init__(
        self,
        *arguments: Any,
        settings: Settings,
        refused: Callable[[str], None],
        shedding: Shedding = SHEDS_NONE,
        **named: Any,
    ) -> None:
        super().__init__(*arguments, **named)
        self.loop: Any = deadlines_of(self.loop)  # of uvicorn too, whose deadline is that of an idle connection
        self._settings, self._write_timeout, self._on_refused = settings, settings.write_timeout, refused
        self._shedding = shedding
        self._idle_since = self.loop.time()
        self._unread = NOTHING
        self._in_head = self._refused = False
        self._answered: RequestResponseCycle | None = None
        #: Bytes parsed since there was last a piece of a body, or a head or a message complete.
        self._idle_bytes = 0
        #: Bytes of the body that are still to come; None where its head does not say how many it has.
        self._left: int | None = 0
        self._head_deadline: Deadline | None = None
        self._write_deadline: Deadline | None = None
        self._telling: Deadline | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Begin to wait for the first head."""
        self._bounded = BoundedTransport(transport, self.loop, self._write_timeout, self._is_cut_short)
        self._taker = Taker(self._bounded.abort)
        super().connection_made(self._bounded)
        self.flow = self._flow = BoundedFlow(self._bounded)
        self._await_head()
        if len(self.connections) > self._settings.max_connections:
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting, and tell who answers: uvicorn tells the request that came last, which may wait behind it."""
        self._unread = NOTHING
        if self._answered is not None and not self._answered.response_complete:
            self._answered.disconnected = True
            self._answered.message_event.set()
        self._head_ended()
        self._told()
        self._taken()
        self._bounded.forget()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse it, unless requests that came before are still to be answered; after the end, forget it."""
        if self._refused or self.transport.is_closing():
            self._bounded.drop(len(data))
            return
        self._unread = memoryview(bytes(self._unread) + data if self._unread else data)
        self._parse()

    def on_response_complete(self) -> None:
        """Go on with what was pipelined."""
        self._idle_since = self.loop.time()
        super().on_response_complete()
        self._parse()

    def _parse(self) -> None:
        while self._unread and not self.pipeline and not self.transport.is_closing():
            size = max(PIECE, self._left or 0)
            piece, self._unread = self._unread[:size], self._unread[size:]
            self._idle_bytes += len(piece)
            super().data_received(piece)  # the parser takes any buffer  # pyrefly: ignore[bad-argument-type]
            if self._idle_bytes > (self._settings.max_head_bytes if self._in_head else MAX_TRAILER_BYTES):
                self._refuse_the_rest(Refusal(*TRAILERS_TOO_LARGE) if self._in_body() else self._head_too_large())
        # Timers are for what has not come: most requests are parsed in one turn, from their first byte to their last.
        if self._in_head and self._head_deadline is None:
            self._await_head()
        if self._telling is None and self._in_body() and self.cycle.body and not self.cycle.message_event.is_set():
            self._telling = self.loop.call_later(TOLD_SECONDS, self._tell, self.cycle)
        if self._unread or self._refused:
            self._flow.hold()
        else:
            self._flow.let_go()

    def on_message_begin(self) -> None:
        """The first byte of a request."""
        self._in_head, self._idle_bytes = True, 0
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header; trailers are not headers, and nobody here wants them."""
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Judge the head, then let the application answer."""
        self._head_ended()
        self._idle_bytes = 0
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        fault = self._head_too_large() if size > self._settings.max_head_bytes else None
        if len(self.url) > MAX_URL_BYTES:
            self.url, fault = b"/", fault or Refusal(*URL_TOO_LONG)  # a longer one cannot be parsed
        if fault is not None:
            self.scope[FAULT_KEY] = fault  # pyrefly: ignore[bad-typed-dict-key]
        self.scope[TAKER_KEY] = self._taker  # pyrefly: ignore[bad-typed-dict-key]
        self.app = answering = Answering(self.config.loaded_app, self._begins)  # pyrefly: ignore[bad-argument-type, bad-override-mutable-attribute]
        super().on_headers_complete()
        answering.cycle = self.cycle
        self._left = next((int(value) for name, value in self.headers if name == b"content-length"), None)
        if self._shedding.takes():
            self.cycle.keep_alive = False

    def _begins(self, cycle: RequestResponseCycle) -> None:
        self._answered = cycle

    def on_body(self, body: bytes) -> None:
        """The body goes on, of which the reader is told now or soon; of its end it is told by `on_message_complete`."""
        self._idle_bytes = 0
        if self._left is not None:
            self._left -= len(body)
        if self.cycle.response_complete or (self._left != 0 and len(self.cycle.body) + len(body) >= TOLD_BYTES):
            super().on_body(body)
        else:
            self.cycle.body += body

    def on_message_complete(self) -> None:
        """The next byte begins another request."""
        self._idle_bytes = self._left = 0
        self._told()
        super().on_message_complete()

    def pause_writing(self) -> None:
        """The client has not taken what was written; it has `write_timeout` seconds."""
        super().pause_writing()
        self._taker.stops()
        if self._write_deadline is None:
            self._write_deadline = self.loop.call_later(self._write_timeout, self._bounded.abort)

    def resume_writing(self) -> None:
        """The client has taken it."""
        self._taken()
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """What cannot be parsed is refused like everything else."""
        self._refuse_the_rest(Refusal(*NOT_HTTP))

    def _refuse_the_rest(self, refusal: Problem) -> None:
        """Read no more of this connection; an answer that is under way is still given, a body's reader learns why."""
        self._unread, self._refused = NOTHING, True
        self._flow.hold()
        if self.cycle is None or self.cycle.response_complete:
            self._answer_and_close(refusal)
            return
        self.cycle.keep_alive = False
        if self._in_body():
            self.cycle.scope[FAULT_KEY] = refusal  # pyrefly: ignore[bad-typed-dict-key]
            self.cycle.message_event.set()

    def _make_room(self) -> None:
        """End the connection that has been idle for longest; where all are at work, this one."""
        idle = [other for other in self.connections if isinstance(other, BoundedProtocol) and other._is_idle(self)]
        if idle:
            min(idle, key=lambda other: other._idle_since).transport.abort()
        else:
            most, variable = self._settings.max_connections, self._settings.variable("max_connections")
            detail = f"all {most} connections are at work; send it again later, or raise {variable}"
            self._refuse_the_rest(Unavailable(503, "too-many-connections", detail))

    def _is_idle(self, newest: "BoundedProtocol") -> bool:
        at_work = self.cycle is not None and not self.cycle.response_complete
        return self is not newest and not at_work and not self.transport.is_closing()

    def _answer_and_close(self, refusal: Problem) -> None:
        """Answer a request that never became one."""
        self._on_refused(refusal.kind)
        response = response_to(refusal)
        head = b"".join(b"%s: %s\r\n" % header for header in response.raw_headers)
        status = b"HTTP/1.1 %d %s\r\n" % (response.status_code, refusal.status.phrase.encode())
        self.transport.write(status + head + b"connection: close\r\n\r\n" + bytes(response.body))
        self.transport.close()

    def _is_cut_short(self) -> bool:
        """Whether the client may be in the middle of a request."""
        return self._in_head or self._refused or self._in_body()

    def _head_too_large(self) -> Refusal:
        most, variable = self._settings.max_head_bytes, self._settings.variable("max_head_bytes")
        detail = f"the request line and headers are over the limit of {most} bytes; raise {variable} to allow them"
        return Refusal(431, "head-too-large", detail)

    def _in_body(self) -> bool:
        return not self._in_head and self.cycle is not None and self.cycle.more_body

    def _tell(self, cycle: RequestResponseCycle) -> None:
        self._telling = None
        cycle.message_event.set()

    def _told(self) -> None:
        if self._telling is not None:
            self._telling.cancel()
            self._telling = None

    def _await_head(self) -> None:
        self._head_deadline = self.loop.call_later(self._settings.head_timeout, self._head_late)

    def _head_ended(self) -> None:
        self._in_head = False
        if self._head_deadline is not None:
            self._head_deadline.cancel()
            self._head_deadline = None

    def _head_late(self) -> None:
        if self.pipeline:
            self._await_head()  # it is not read further before those in front of it are answered
            return
        self._head_deadline = None
        if self._in_head:
            seconds, variable = self._settings.head_timeout, self._settings.variable("head_timeout")
            detail = f"the head of the request did not arrive within {seconds:g} s; {variable} sets the limit"
            self._refuse_the_rest(Refusal(408, "head-timeout", detail))
        else:
            self.transport.close()

    def _taken(self) -> None:
        self._taker.goes_on()
        if self._write_deadline is not None:
            self._write_deadline.cancel()
            self._write_deadline = None
