"""Sealed: a file in zstd's seekable format as one that can be read from any offset of its content.

The format is a row of independent frames, and behind them a skippable frame with the sizes of each, so that a seek
unpacks one frame and not the file (facebook/zstd, contrib/seekable_format/zstd_seekable_compression_format.md). Knows
bytes and nothing of what they say.
"""

import io
import struct
from bisect import bisect_right
from itertools import accumulate
from pathlib import Path
from typing import Any, BinaryIO, cast

from offpolicy_monitor.client.files.needed import needed
from offpolicy_monitor.client.files.record import Unreadable

FOOTER = struct.Struct("<IBI")  # frames, descriptor, magic number
MAGIC = 0x8F92EAB1
CHECKSUMS = 0x80  # of the descriptor: each entry has four bytes more
BUFFER = 1 << 16


def open_sealed(path: Path) -> BinaryIO:
    """The unpacked content, for seeking and for reading by lines. Raises Unreadable, ConfigurationError."""
    return cast("BinaryIO", io.BufferedReader(Sealed(path), BUFFER))


class Sealed(io.RawIOBase):
    """The unpacked content; the frame that was read last is kept."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path, self.position, self.kept = path, 0, (-1, b"")
        self.unpacker = _zstandard().ZstdDecompressor()
        self.file = path.open("rb")
        sizes = self._sizes()
        self.packed = [0, *accumulate(packed for packed, _ in sizes)]
        self.unpacked = [0, *accumulate(unpacked for _, unpacked in sizes)]

    def _sizes(self) -> list[tuple[int, int]]:
        """Bytes of each frame, packed and unpacked."""
        end = self.file.seek(0, io.SEEK_END)
        self.file.seek(max(end - FOOTER.size, 0))
        footer = self.file.read()
        count, descriptor, magic = FOOTER.unpack(footer) if len(footer) == FOOTER.size else (0, 0, 0)
        entry = struct.Struct("<II4x" if descriptor & CHECKSUMS else "<II")
        begin = end - FOOTER.size - count * entry.size
        if magic != MAGIC or begin < 0:
            self.file.close()
            raise Unreadable(f"{self.path} is not in zstd's seekable format: unpack it with zstd -d")
        self.file.seek(begin)
        return list(entry.iter_unpack(self.file.read(count * entry.size)))

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a byte of the unpacked content."""
        self.position = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self.position, io.SEEK_END: self.unpacked[-1]}[whence]
        return self.position

    def tell(self) -> int:
        """The byte of the unpacked content that is read next."""
        return self.position

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer up to the end of the frame at most; 0 at the end of the content."""
        index = bisect_right(self.unpacked, self.position) - 1
        if index + 1 >= len(self.unpacked):
            return 0
        start = self.position - self.unpacked[index]
        part = self._frame(index)[start : start + len(buffer)]
        buffer[: len(part)] = part
        self.position += len(part)
        return len(part)

    def _frame(self, index: int) -> bytes:
        if self.kept[0] != index:
            self.file.seek(self.packed[index])
            packed = self.file.read(self.packed[index + 1] - self.packed[index])
            size = self.unpacked[index + 1] - self.unpacked[index]
            self.kept = index, self._unpacked(packed, size)
        return self.kept[1]

    def _unpacked(self, packed: bytes, size: int) -> bytes:
        zstandard = _zstandard()
        try:
            # A frame says how large it is, and that much is asked of memory before it is unpacked.
            if zstandard.frame_content_size(packed) not in (-1, size):
                raise Unreadable(f"{self.path} is damaged: a frame is to have {size} bytes and says otherwise")
            content: bytes = self.unpacker.decompress(packed, max_output_size=size)
        except zstandard.ZstdError as error:
            raise Unreadable(f"{self.path} is damaged: {error}") from error
        if len(content) != size:
            raise Unreadable(f"{self.path} is damaged: a frame of {len(content)} bytes is to have {size}")
        return content

    def close(self) -> None:
        """Close the file too."""
        if hasattr(self, "file"):
            self.file.close()
        super().close()


def _zstandard() -> Any:
    return needed("zstandard", "a sealed chunk is a zstd file", "zstandard")
