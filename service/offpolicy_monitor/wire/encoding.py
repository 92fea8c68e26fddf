"""Content-Encoding: from the bytes received to the body, under limits that hold while decompressing.

Knows zstd and gzip and nothing of what is inside. A few kilobytes can mean hundreds of megabytes, so input is fed in
pieces whose largest possible output is bounded, and the limits are checked after each piece.
"""

import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import zstandard

from offpolicy_monitor.errors import Refusal
from offpolicy_monitor.wire.limits import Limits

# A padded batch is mostly zeros and compresses a thousandfold, far beyond any ratio worth allowing; up to here the byte
# limit and the budget for decoding bound what it costs.
RATIO_FREE_BYTES = 64 << 20
# RFC 9659: a window over 8 MiB is not to be used in a zstd Content-Encoding.
ZSTD_WINDOW_BYTES = 8 << 20
# Each member costs a new decompressor; millions of empty ones are an attack on the CPU that no byte limit sees.
MAX_MEMBERS = 10_000


class Decompressor(Protocol):
    """What the decompression objects of zlib and zstandard have in common."""

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, /) -> bytes: ...


@dataclass(frozen=True)
class Encoding:
    """One content coding: how a member is begun, and how many bytes it is fed at a time."""

    begin: Callable[[], Decompressor]
    piece: int


def _begin_zstd() -> Decompressor:
    return zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW_BYTES).decompressobj()


def _begin_gzip() -> Decompressor:
    return zlib.decompressobj(16 + zlib.MAX_WBITS)


# A zstd block of 4 bytes can mean 128 KiB, so a piece means 32 MiB at most; deflate reaches 1032:1, a piece 16 MiB.
ENCODINGS: Mapping[str, Encoding] = {
    "zstd": Encoding(_begin_zstd, 1 << 10),
    "gzip": Encoding(_begin_gzip, 1 << 14),
    "x-gzip": Encoding(_begin_gzip, 1 << 14),
}


def decompress(body: bytes | memoryview, encoding: str | None, limits: Limits) -> memoryview:
    """Undo the Content-Encoding of a whole body; `identity`, empty or None gives the body itself.

    Several zstd frames or gzip members in a row are one body. Raises Refusal: 415 unknown encoding, 413 over
    max_decoded_bytes or max_decoded_ratio, 400 corrupt, cut off, or followed by anything else.
    """
    name = (encoding or "").strip().lower()
    if name in ("", "identity"):
        return memoryview(body)
    if name not in ENCODINGS:
        raise Refusal(415, "unsupported-encoding", "Content-Encoding must be zstd, gzip or identity, and only one")
    decoded = bytearray()
    try:
        for output in _outputs(memoryview(body), ENCODINGS[name], name):
            decoded += output
            _check(len(decoded), len(body), limits)
    except (zlib.error, zstandard.ZstdError) as error:
        raise _corrupt(name, _reason(str(error))) from error
    return memoryview(decoded)


def most_decoded(received: int, limits: Limits) -> int:
    """Bytes that a compressed body of `received` bytes may become before it is refused."""
    return min(limits.max_decoded_bytes, max(RATIO_FREE_BYTES, limits.max_decoded_ratio * received))


def _outputs(body: memoryview, encoding: Encoding, name: str) -> Iterator[bytes]:
    member, members = encoding.begin(), 1
    for start in range(0, len(body), encoding.piece):
        piece = bytes(body[start : start + encoding.piece])
        while piece:
            if member.eof:
                member, members = encoding.begin(), members + 1
                if members > MAX_MEMBERS:
                    raise _corrupt(name, f"more than {MAX_MEMBERS} frames or members in one body")
            yield member.decompress(piece)
            piece = member.unused_data if member.eof else b""
    if not member.eof:
        cut = "the data ends before its end mark"
        raise _corrupt(name, cut if members == 1 else "what follows its end mark is no whole frame or member")


def _check(decoded: int, received: int, limits: Limits) -> None:
    if decoded > limits.max_decoded_bytes:
        raise limits.refusal(413, "max_decoded_bytes", "body", "its size decoded, bytes,")
    if decoded > most_decoded(received, limits):
        raise limits.refusal(413, "max_decoded_ratio", "body", "the ratio of decoded to received bytes")


def _reason(error: str) -> str:
    """The library's words; where the window is too large they speak of memory, which its sender cannot act on."""
    return f"its window is over {ZSTD_WINDOW_BYTES} bytes (RFC 9659)" if "too much memory" in error else error


def _corrupt(name: str, reason: str) -> Refusal:
    return Refusal(400, "malformed-body", f"the body is not valid {name}: {reason}")
