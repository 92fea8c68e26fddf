"""A line between two processes of one service: pickled values over a socket, sent by one call of the system, received
by two.

Each call lets go of the interpreter's lock, and has to get it back from whoever has it by then: that takes longer than
the call.
"""

import pickle
import socket
import struct
from collections.abc import Callable
from contextlib import closing
from typing import Any, Final, Self

_LENGTH: Final = struct.Struct("<Q")
LATE: Final = "no answer in time"
ENDED: Final = "it has ended"


class Line:
    """One end. `patience`: seconds for which sending and receiving stand still, None for ever; TimeoutError then.

    Raises EOFError where the other end is closed, or what came is cut off; OSError where the system cannot.
    """

    def __init__(self, end: socket.socket, patience: float | None = None) -> None:
        self._end = end
        self.wait_at_most(patience)

    @classmethod
    def pair(cls) -> tuple[Self, socket.socket]:
        """This process's end, and the other one as it is sent or inherited."""
        own, its = socket.socketpair()
        return cls(own), its

    @classmethod
    def inherited(cls, handle: int) -> Self:
        """The end with this handle."""
        return cls(socket.socket(fileno=handle))

    def wait_at_most(self, patience: float | None) -> None:
        """Have another patience."""
        # By the system: a timeout of Python's makes two calls of each.
        seconds = struct.pack("ll", *divmod(int((patience or 0.0) * 1e6), 1_000_000))
        for way in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):
            self._end.setsockopt(socket.SOL_SOCKET, way, seconds)

    def send(self, value: Any) -> None:
        """Send a value."""
        text = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
        sent = _in_time(self._end.sendmsg, [_LENGTH.pack(len(text)), text])
        if sent < _LENGTH.size + len(text):  # an end that is closed is an error
            raise TimeoutError(LATE)

    def receive(self) -> Any:
        """The next value."""
        (length,) = _LENGTH.unpack(self._received(_LENGTH.size))
        return pickle.loads(self._received(length))

    def send_line(self, end: socket.socket) -> None:
        """Send an end of another line, which is closed here."""
        with closing(end):
            socket.send_fds(self._end, [b"L"], [end.fileno()])

    def receive_line(self) -> Self:
        """The end that is sent next."""
        said, handles, *_ = socket.recv_fds(self._end, 1, 1)
        if not said:
            raise EOFError(ENDED)
        return self.inherited(handles[0])

    def close(self) -> None:
        """Close this end."""
        self._end.close()

    def _received(self, length: int) -> bytearray:
        found = bytearray(length)
        came = _in_time(self._end.recv_into, found, length, socket.MSG_WAITALL)
        if came < length:
            raise EOFError("cut off" if came else ENDED)
        return found


def _in_time(call: Callable[..., int], *given: Any) -> int:
    try:
        return call(*given)
    except BlockingIOError as error:
        raise TimeoutError(LATE) from error
    except (BrokenPipeError, ConnectionResetError) as error:
        raise EOFError(ENDED) from error
