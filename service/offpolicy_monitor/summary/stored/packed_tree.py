"""Reads a packed tree of numbers: names in one JSON text, whole numbers and fractions in streams of bytes of their own.

A leaf is a table (name -> number) or a list of whole numbers. Tables of the same names share one entry in the header,
tables whose names are whole numbers (sparse histograms) keep them as steps from one to the next. Each kind of number
has a stream, in which the bytes that carry something stand together, so that zlib meets like with like. It knows no
summary.
"""

import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, cycle, islice, pairwise
from struct import Struct
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

#: Marks a leaf that is a list of whole numbers; every other leaf is [index of its names, kinds of its numbers].
LIST: Final = 0

#: The streams: numbers of lists, names of tables that are whole numbers, whole numbers and fractions of tables; a
#: fraction that float32 holds exactly is a single.
LISTED, NAME, INTEGER, SINGLE, DOUBLE = KINDS = ("l", "n", "i", "f", "d")
_DTYPES: Final = {SINGLE: "<f4", DOUBLE: "<f8"}

#: A whole number of this size or more has its rest behind the others.
_LARGE: Final = 255
_LARGEST: Final = (1 << 63) - 1

_LENGTHS = Struct(f"<{1 + len(KINDS)}I")
_COUNT = Struct("<I")

Array = NDArray[Any]


class TooLargeError(ValueError):
    """What is packed is larger than the `most` bytes that were allowed."""

    def __init__(self, most: int) -> None:
        super().__init__(f"more than {most} bytes")


def unpack(packed: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """The tree of packed bytes and the JSON beside it. Any error where the bytes are something else."""
    return read(inflated(packed))


def is_packed(packed: bytes | memoryview) -> bool:
    """Whether bytes are as many as they say."""
    return len(packed) >= _LENGTHS.size and _LENGTHS.size + sum(_LENGTHS.unpack_from(packed)) == len(packed)


def inflated(packed: bytes, most: int = 0) -> list[bytes]:
    """The header and the streams of packed bytes, decompressed; ValueError past `most` bytes of all, 0 for any."""
    ends = list(accumulate(_LENGTHS.unpack_from(packed), initial=_LENGTHS.size))
    if ends[-1] != len(packed):
        raise ValueError(f"{len(packed)} bytes where {ends[-1]} were written")
    parts: list[bytes] = []
    left = most
    for start, end in pairwise(ends):
        stream = zlib.decompressobj()
        parts.append(stream.decompress(packed[start:end], left + 1 if most else 0))
        left -= len(parts[-1])
        if most and left < 0:
            raise TooLargeError(most)
        if not stream.eof or stream.unused_data:
            raise ValueError("a stream that does not end where it should")
    return parts


def read(parts: Sequence[bytes]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The tree and the JSON beside it, from decompressed parts; ValueError where numbers are missing or left over."""
    header, *rest = parts
    listed, outline, texts = json.loads(header)
    streams = {kind: iter(_from_bytes(part, kind)) for kind, part in zip(KINDS, rest, strict=True)}
    try:
        tree = _Reader(listed, streams).read(outline)
    except StopIteration as error:
        raise ValueError("a stream ends before its numbers do") from error
    if any(next(stream, None) is not None for stream in streams.values()):
        raise ValueError("a stream goes on after its numbers")
    return tree, texts


@dataclass
class _Reader:
    """Takes the numbers out of the streams in the order in which they were put in."""

    names: list[list[str] | None]
    streams: Mapping[str, Iterator[float]]

    def read(self, node: Any) -> Any:
        """The node of an outline with its numbers."""
        if isinstance(node, dict):
            return {name: self.read(child) for name, child in node.items()}
        if node == LIST:
            return self._whole(LISTED)
        index, kinds = node
        keys = self._keys(index)
        return {key: next(self.streams[kind]) for key, kind in zip(keys, cycle(kinds), strict=False)}

    def _keys(self, index: int) -> list[str]:
        keys = self.names[index]
        if keys is None:
            keys = self.names[index] = [str(number) for number in accumulate(self._whole(NAME))]
        return keys

    def _whole(self, kind: str) -> list[Any]:
        return list(islice(self.streams[kind], int(next(self.streams[kind]))))


def _from_bytes(packed: bytes, kind: str) -> list[Any]:
    """The numbers of a stream."""
    if kind not in _DTYPES:
        return _whole_from_bytes(packed)
    dtype = np.dtype(_DTYPES[kind])
    numbers: list[Any] = (np.frombuffer(packed, dtype) if kind == DOUBLE else _from_planes(packed, dtype)).tolist()
    return numbers


def _whole_from_bytes(packed: bytes) -> list[int]:
    (count,) = _COUNT.unpack_from(packed)
    folded = np.frombuffer(packed, np.uint8, count, _COUNT.size).astype(np.int64)
    large = folded == _LARGE
    folded[large] += _from_planes(packed[_COUNT.size + count :], np.dtype("<i8"))
    numbers: list[int] = (((folded >> 1) & _LARGEST) ^ -(folded & 1)).tolist()
    return numbers


def _from_planes(packed: bytes, dtype: np.dtype[Any]) -> Array:
    planes = np.frombuffer(packed, np.uint8).reshape(dtype.itemsize, -1)
    return np.ascontiguousarray(planes.T).view(dtype).ravel()
