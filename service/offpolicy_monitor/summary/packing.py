"""Packs a tree of numbers small: names in one JSON text, whole numbers and fractions in streams of bytes of their own.

A leaf is a table (name -> number) or a list of whole numbers. Tables of the same names share one entry in the header,
tables whose names are whole numbers (sparse histograms) keep them as steps from one to the next. Each kind of number
has a stream, in which the bytes that carry something stand together, so that zlib meets like with like. It knows no
summary.
"""

import json
import zlib
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, cycle, islice, pairwise
from struct import Struct
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

#: Level 9 saves another 1 % of the bytes for four times the time.
COMPRESSION_LEVEL: Final = 6

#: Marks a leaf that is a list of whole numbers; every other leaf is [place of its names, kinds of its numbers].
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

Tree = Mapping[str, Any]
Array = NDArray[Any]


class TooLargeError(ValueError):
    """What is packed is larger than the `most` bytes that were allowed."""

    def __init__(self, most: int) -> None:
        super().__init__(f"more than {most} bytes")


@dataclass
class _Streams:
    """The numbers of all leaves, in their order; and the names of tables, each with its place in the header."""

    numbers: Mapping[str, list[Any]] = field(default_factory=lambda: {kind: [] for kind in KINDS})
    names: dict[tuple[str, ...], int] = field(default_factory=dict)


def pack(tree: Tree, texts: Mapping[str, Any]) -> bytes:
    """Write a tree whose leaves are tables of numbers or lists of whole numbers, and any JSON beside it.

    ValueError for NaN and infinity.
    """
    streams = _Streams()
    outline = _write(tree, streams)
    listed = [None if _numbered(keys) else keys for keys in streams.names]
    header = json.dumps([listed, outline, texts], allow_nan=False, separators=(",", ":")).encode()
    parts = [header, *(_to_bytes(numbers, kind) for kind, numbers in streams.numbers.items())]
    compressed = [zlib.compress(part, COMPRESSION_LEVEL) for part in parts]
    return _LENGTHS.pack(*map(len, compressed)) + b"".join(compressed)


def unpack(packed: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read what `pack` wrote: the tree and the JSON beside it. Any error where the bytes are something else."""
    return read(inflated(packed))


def inflated(packed: bytes, most: int = 0) -> list[bytes]:
    """The header and the streams of what `pack` wrote, decompressed; ValueError past `most` bytes of all, 0 for any."""
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


def _write(node: Any, streams: _Streams) -> Any:
    """The outline of a node, its numbers put into the streams."""
    if not isinstance(node, Mapping):
        streams.numbers[LISTED].extend([len(node), *node])
        return LIST
    values = list(node.values())
    if not values or not isinstance(values[0], (int, float)):
        return {name: _write(child, streams) for name, child in node.items()}
    keys = tuple(node)
    if keys not in streams.names:
        streams.names[keys] = len(streams.names)
        if _numbered(keys):
            places = [int(key) for key in keys]
            steps = (right - left for left, right in pairwise(places))
            streams.numbers[NAME].extend([len(keys), places[0], *steps])
    return [streams.names[keys], _write_values(values, streams)]


def _write_values(values: Sequence[float], streams: _Streams) -> str:
    """Put a table's numbers into the streams; their kinds, one letter for all where all are alike."""
    fractions = [value for value in values if isinstance(value, float)]
    if not fractions:
        streams.numbers[INTEGER].extend(values)
        return INTEGER
    kind = SINGLE if array("f", fractions).tolist() == fractions else DOUBLE
    streams.numbers[kind].extend(fractions)
    if len(fractions) == len(values):
        return kind
    streams.numbers[INTEGER].extend(value for value in values if not isinstance(value, float))
    return "".join(kind if isinstance(value, float) else INTEGER for value in values)


def _numbered(keys: Sequence[str]) -> bool:
    """Whether all names are whole numbers as `str` writes them."""
    return all(key.isascii() and key.isdigit() and (key[0] != "0" or key == "0") for key in keys)


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
        place, kinds = node
        keys = self._keys(place)
        return {key: next(self.streams[kind]) for key, kind in zip(keys, cycle(kinds), strict=False)}

    def _keys(self, place: int) -> list[str]:
        keys = self.names[place]
        if keys is None:
            keys = self.names[place] = [str(number) for number in accumulate(self._whole(NAME))]
        return keys

    def _whole(self, kind: str) -> list[Any]:
        return list(islice(self.streams[kind], int(next(self.streams[kind]))))


def _to_bytes(values: Sequence[float], kind: str) -> bytes:
    """The numbers of a stream; doubles as they are, since nothing is gained by parting their bytes."""
    if kind not in _DTYPES:
        return _whole_to_bytes(np.asarray(values, np.int64))
    numbers = np.asarray(values, _DTYPES[kind])
    if not np.isfinite(numbers).all():
        raise ValueError("NaN and infinity cannot be stored")
    return numbers.tobytes() if kind == DOUBLE else _planes(numbers)


def _from_bytes(packed: bytes, kind: str) -> list[Any]:
    """Read what `_to_bytes` wrote."""
    if kind not in _DTYPES:
        return _whole_from_bytes(packed)
    dtype = np.dtype(_DTYPES[kind])
    numbers: list[Any] = (np.frombuffer(packed, dtype) if kind == DOUBLE else _from_planes(packed, dtype)).tolist()
    return numbers


def _whole_to_bytes(numbers: Array) -> bytes:
    """How many there are, one byte of each, and what does not fit into it; small numbers of either sign are small."""
    folded = ((numbers << 1) ^ (numbers >> 63)).astype(np.uint64)
    rest = folded[folded >= _LARGE] - np.uint64(_LARGE)
    return _COUNT.pack(len(folded)) + np.minimum(folded, _LARGE).astype(np.uint8).tobytes() + _planes(rest)


def _whole_from_bytes(packed: bytes) -> list[int]:
    (count,) = _COUNT.unpack_from(packed)
    folded = np.frombuffer(packed, np.uint8, count, _COUNT.size).astype(np.int64)
    large = folded == _LARGE
    folded[large] += _from_planes(packed[_COUNT.size + count :], np.dtype("<i8"))
    numbers: list[int] = (((folded >> 1) & _LARGEST) ^ -(folded & 1)).tolist()
    return numbers


def _planes(numbers: Array) -> bytes:
    """Bytes of equal significance together."""
    return numbers.view(np.uint8).reshape(-1, numbers.itemsize).T.tobytes()


def _from_planes(packed: bytes, dtype: np.dtype[Any]) -> Array:
    planes = np.frombuffer(packed, np.uint8).reshape(dtype.itemsize, -1)
    return np.ascontiguousarray(planes.T).view(dtype).ravel()
