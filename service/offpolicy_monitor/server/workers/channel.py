"""Channel: what the supervisor and one worker say to each other, messages in order, some with a connection.

Neither end ever waits for the other: what does not fit is not sent, and the sender is told. The end of a process ends
its channel, whatever ended it. A message begins with the letter of its kind. Knows no HTTP and no metrics.
"""

import socket
from contextlib import suppress
from typing import Final

#: Bytes of the longest message; the kernel's default buffer has room for it, and for some hundred connections.
LONGEST: Final = 64 * 1024

#: From the supervisor: a connection to serve; stop; let so many connections go; no sibling is told of, some were not.
CONNECTION, STOP, SHED, MISSED = b"C", b"S", b"D", b"M"
#: From a worker: it serves; it cannot start; how many connections it has; it was told to stop by somebody else.
SERVES, FAILED, LOAD, LEAVES = b"U", b"F", b"L", b"Q"
#: From a worker to its siblings, and as they get it: after the letter a byte, whom it is for or whom it is from.
RELAY: Final = b"R"
ALL: Final = 255


class Gone(Exception):
    """The other end has ended."""


class Channel:
    """One end."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        end.setblocking(False)

    def fileno(self) -> int:
        """For whoever waits until there is something to read."""
        return self._end.fileno()

    def send(self, message: bytes, connection: socket.socket | None = None) -> bool:
        """Whether it was sent; False where the other end is too far behind, or has ended. Safe in any thread."""
        try:
            if connection is None:
                self._end.send(message)
            else:
                socket.send_fds(self._end, [message], [connection.fileno()])
        except OSError:  # full, too long, too many connections under way, or the end
            return False
        return True

    def receive(self) -> tuple[bytes, socket.socket | None] | None:
        """The next message and its connection; None where there is none yet. Gone at the end."""
        try:
            message, descriptors, _, _ = socket.recv_fds(self._end, LONGEST, 1)
        except BlockingIOError:
            return None
        except OSError as error:
            raise Gone from error
        if not message:
            raise Gone
        return message, socket.socket(fileno=descriptors[0]) if descriptors else None

    def close(self) -> None:
        """End it."""
        with suppress(OSError):
            self._end.close()


def pair() -> tuple[Channel, Channel]:
    """Both ends."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    return Channel(ours), Channel(theirs)
