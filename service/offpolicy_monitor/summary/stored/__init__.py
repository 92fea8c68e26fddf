"""The stored form of a StepSummary: a byte with the version, then what that version says.

A reader accepts every version ever written; a writer writes the newest. 7 to 32 KB per shard.
"""

import struct
import zlib
from collections.abc import Callable, Mapping
from typing import Final

import zstandard

from offpolicy_monitor.errors import OffpolicyMonitorError
from offpolicy_monitor.summary.layout import LAYOUT
from offpolicy_monitor.summary.rows import AS_ARRAYS
from offpolicy_monitor.summary.step import StepSummary
from offpolicy_monitor.summary.stored import version_1, version_2, version_3
from offpolicy_monitor.summary.stored.packed_tree import TooLargeError

#: What reading bytes that are no summary may raise.
UNREADABLE: Final = (
    zlib.error, zstandard.ZstdError, struct.error, ValueError, TypeError, LookupError, AttributeError, RuntimeError,
    OverflowError,
)  # fmt: skip

__all__ = ["UNREADABLE", "StoredSummaryError", "TooLargeError", "from_bytes", "to_bytes"]


class StoredSummaryError(OffpolicyMonitorError):
    """Bytes that hold no summary, or one written by a newer release."""


def to_bytes(summary: StepSummary) -> bytes:
    """Write a summary; `from_bytes` gives back an equal one, bit for bit. ValueError for NaN and infinity."""
    return bytes([LAYOUT.version]) + version_3.write(summary)


def from_bytes(stored: bytes) -> StepSummary:
    """Read a summary of any version; StoredSummaryError where the bytes are not one."""
    try:
        if AS_ARRAYS <= stored[0] <= LAYOUT.version:
            return version_3.read(stored[1:], stored[0])
        return _READERS[stored[0]](stored)
    except UNREADABLE as error:
        raise StoredSummaryError(f"not a summary that this release can read: {error!r}") from error


#: Of summaries by name, by the first byte; version 1 has none of its own, and begins as zlib does.
_READERS: Final[Mapping[int, Callable[[bytes], StepSummary]]] = {
    0x78: version_1.read,
    2: lambda stored: version_2.read(stored[1:]),
}
