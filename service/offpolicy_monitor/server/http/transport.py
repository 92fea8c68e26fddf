"""BoundedTransport and BoundedFlow: what a connection may cost while it ends, and while nothing may be read from it.

asyncio closes a transport only when all that is written was taken, and waits for that for ever. Closed with bytes
unread, TCP resets the connection, and the client may lose the answer that says why. Both are bounded here. Knows no
HTTP.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from uvicorn.protocols.http.flow_control import FlowControl

from offpolicy_monitor.server.http.deadlines import Deadline, Deadlines

#: A client whose request was cut short may go on sending for so long, and so much, while it reads why; nothing is kept.
LINGER_SECONDS: Final = 2.0
LINGER_BYTES: Final = 4 << 20
#: TLS ends with a word of both sides. A client that sits idle says none, and everything has been written to it.
GOODBYE_SECONDS: Final = 0.5
#: Bytes that wait to be taken before no more are written, as in the clear: encrypted it would be eight times as many.
WRITE_AHEAD: Final = 64 << 10
#: What is shorter, as the head of an answer is, waits for what is written after it, to leave with it in one packet.
SHORT: Final = 4096


class BoundedTransport(asyncio.Transport):
    """The transport of a connection that has `timeout` seconds to take what is written when it is closed.

    `cut_short` says whether the client may still be sending what nobody will read.
    """

    def __init__(
        self, inner: asyncio.Transport, loop: Deadlines, timeout: float, cut_short: Callable[[], bool]
    ) -> None:
        super().__init__()
        self._inner, self._loop, self._timeout, self._cut_short = inner, loop, timeout, cut_short
        self._encrypted = inner.get_extra_info("sslcontext") is not None
        if self._encrypted:
            inner.set_write_buffer_limits(WRITE_AHEAD)
        self._closing = False
        self._deadline: Deadline | None = None
        self._dropped = 0
        self._short = b""

    def close(self) -> None:
        """Send what is written, then end; where the client is still sending, it is heard out for LINGER_SECONDS."""
        if self.is_closing():
            return
        self._closing = True
        self._write_short()
        if self._cut_short():
            if not self._encrypted:  # TLS has no half of a connection
                self._inner.write_eof()
            self._inner.resume_reading()
            self._end_after(LINGER_SECONDS, self._stop)
        else:
            self._stop()

    def drop(self, size: int) -> None:
        """So many bytes arrived after the end and were forgotten."""
        self._dropped += size
        if self._dropped > LINGER_BYTES:
            self._stop()

    def forget(self) -> None:
        """The connection is lost: nothing is left to bound."""
        if self._deadline is not None:
            self._deadline.cancel()

    def _stop(self) -> None:
        self._inner.close()
        idle = self._encrypted and not self.get_write_buffer_size()
        self._end_after(min(GOODBYE_SECONDS, self._timeout) if idle else self._timeout, self._inner.abort)

    def _end_after(self, seconds: float, end: Callable[[], None]) -> None:
        self.forget()
        self._deadline = self._loop.call_later(seconds, end)

    def is_closing(self) -> bool:
        return self._closing or self._inner.is_closing()

    def abort(self) -> None:
        self._closing = True
        self._inner.abort()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._short:
            first, self._short = self._short, b""
            self._inner.writelines((first, data))
        elif len(data) < SHORT:
            self._short = bytes(data)
            self._loop.call_soon(self._write_short)
        else:
            self._inner.write(data)

    def _write_short(self) -> None:
        if self._short:
            first, self._short = self._short, b""
            self._inner.write(first)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._inner.get_extra_info(name, default)

    def get_write_buffer_size(self) -> int:
        return self._inner.get_write_buffer_size() + len(self._short)

    def pause_reading(self) -> None:
        self._inner.pause_reading()

    def resume_reading(self) -> None:
        self._inner.resume_reading()


class BoundedFlow(FlowControl):
    """Uvicorn's flow control with a second reason not to read: `hold` until `let_go`, whatever uvicorn wants."""

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__(transport)
        self._held = False

    def hold(self) -> None:
        """Read nothing more."""
        if not self._held:
            self._held = True
            self._transport.pause_reading()

    def let_go(self) -> None:
        """Read again, unless uvicorn does not want to."""
        if self._held:
            self._held = False
            if not self.read_paused:
                self._transport.resume_reading()

    def pause_reading(self) -> None:
        self.read_paused = True
        if not self._held:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        self.read_paused = False
        if not self._held:
            self._transport.resume_reading()
