"""The binary body: a safetensors file whose metadata holds the envelope as a JSON string under the key `batch`.

Knows the format and nothing of what the tensors mean. Trainers import it, so it needs numpy and this project's errors
alone. Decoding copies nothing: a tensor is a view of the body given, and every offset is checked before it is used.

A body is the header's length (8 bytes, little-endian), the header (JSON), and the data (tensors back to back).
"""

import json
import math
import re
import struct
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from offpolicy_monitor.errors import FrameError, quoted

MEDIA_TYPE = "application/vnd.safetensors"
METADATA_KEY = "__metadata__"
ENVELOPE_KEY = "batch"
ALIGNMENT = 8

# numpy has no bfloat16 and no 8-bit floats: those tensors are carried as their bit patterns.
CODES: Mapping[str, str] = {
    "BOOL": "?", "U8": "u1", "I8": "i1", "U16": "<u2", "I16": "<i2", "U32": "<u4", "I32": "<i4", "U64": "<u8",
    "I64": "<i8", "F16": "<f2", "BF16": "<u2", "F32": "<f4", "F64": "<f8", "F8_E4M3": "u1", "F8_E5M2": "u1",
}  # fmt: skip
STORAGE = {name: np.dtype(code) for name, code in CODES.items()}
WRITTEN = {dtype: name for name, dtype in STORAGE.items() if name not in ("BF16", "F8_E4M3", "F8_E5M2")}

# What the header says of each tensor.
DESCRIBED = frozenset({"dtype", "shape", "data_offsets"})
# numpy takes 32 dimensions in all its versions; the contract needs four.
MAX_RANK = 8
# Tables of headers that are kept: those of a run come back with every post. A larger header is read anew.
TABLES_KNOWN = 64
LARGEST_KNOWN = 1 << 13
# More than any machine can address. Bounds [0, 2**60] too, whose product of zero hides a size that overflows numpy.
MAX_TENSOR_BYTES = 1 << 48


class Tensor(NamedTuple):
    """One tensor: its safetensors dtype and its values. BF16 comes as uint16 bit patterns."""

    dtype: str
    array: NDArray[Any]


@dataclass(frozen=True)
class Frame:
    """A decoded body. `envelope` is empty where the metadata has none."""

    envelope: dict[str, object]
    tensors: dict[str, Tensor]


class FrameLimitError(FrameError):
    """A frame that may be well-formed but is over a limit: `what` is 'header' (bytes) or 'tensors' (count)."""

    def __init__(self, what: str, got: int, limit: int) -> None:
        super().__init__(f"{what}: {got} is over the limit of {limit}")
        self.what = what
        self.got = got
        self.limit = limit


def encode(
    envelope: Mapping[str, object], arrays: Mapping[str, NDArray[Any]], bfloat16: Collection[str] = ()
) -> list[bytes | memoryview]:
    """Lay a body out as buffers to be sent one after the other; contiguous little-endian arrays are not copied.

    Arrays named in `bfloat16` hold uint16 bit patterns and are written as BF16. Wider items come first, so that each
    tensor starts at a multiple of its item size without holes, which the format forbids.
    Raises FrameError for a dtype that the format lacks, ValueError or TypeError for an envelope that is no JSON.
    """
    ordered = sorted(arrays.items(), key=lambda item: (-item[1].dtype.itemsize, item[0]))
    header: dict[str, object] = {METADATA_KEY: {ENVELOPE_KEY: json.dumps(dict(envelope), allow_nan=False)}}
    buffers: list[bytes | memoryview] = []
    end = 0
    for name, array in ordered:
        start, end = end, end + array.nbytes
        dtype = _written_dtype(name, array, name in bfloat16)
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [start, end]}
        if array.nbytes:
            buffers.append(_buffer(array))
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % ALIGNMENT)
    return [struct.pack("<Q", len(text)) + text, *buffers]


def decode(body: memoryview, max_header_bytes: int, max_tensors: int) -> Frame:
    """Read a body without copying it; only a tensor that is not aligned for its dtype is copied.

    Raises FrameError for anything malformed: each offset must lie inside the data, tensors must follow one another
    without hole or overlap, and a size must be the product of its shape. FrameLimitError where a limit is exceeded.
    """
    body = body.cast("B") if body.format != "B" or body.ndim != 1 else body
    header, data = _split(body, max_header_bytes)
    metadata, table = _known(header, max_tensors)
    if table is None:
        described = _object("the header", header)
        metadata = described.pop(METADATA_KEY, {})
    envelope = _envelope(metadata)
    if table is None:
        table = _Table.of(described, max_tensors)
    if table.size != len(data):
        raise FrameError(f"the tensors take {table.size} bytes and the data has {len(data)}")
    return Frame(envelope, {entry.name: Tensor(entry.dtype, entry.view(data)) for entry in table.entries})


class _Entry(NamedTuple):
    """One row of the header's table, checked by itself; rows sort as their tensors lie."""

    start: int
    end: int
    name: str
    dtype: str
    shape: list[int]

    @classmethod
    def parse(cls, name: str, description: object) -> "_Entry":
        if not isinstance(description, dict) or description.keys() != DESCRIBED:
            raise FrameError(f"{quoted(name)} must have exactly dtype, shape and data_offsets")
        dtype, shape, offsets = description["dtype"], description["shape"], description["data_offsets"]
        if not isinstance(dtype, str) or dtype not in STORAGE:
            raise FrameError(f"{quoted(name)} has the unknown dtype {quoted(dtype)}")
        _check_naturals(name, "shape", shape, MAX_RANK)
        _check_naturals(name, "data_offsets", offsets, 2)
        if len(offsets) != 2:
            raise FrameError(f"data_offsets of {quoted(name)} must be two integers")
        itemsize = STORAGE[dtype].itemsize
        size = math.prod(shape) * itemsize
        if (size or math.prod(extent or 1 for extent in shape) * itemsize) > MAX_TENSOR_BYTES:
            raise FrameError(f"{quoted(name)} has a shape that no memory can hold")
        if offsets[1] - offsets[0] != size:
            raise FrameError(f"data_offsets of {quoted(name)} do not span the bytes of its shape")
        return cls(offsets[0], offsets[1], name, dtype, shape)

    def view(self, data: memoryview) -> NDArray[Any]:
        array = np.frombuffer(data[self.start : self.end], STORAGE[self.dtype]).reshape(self.shape)
        return array if array.flags.aligned else array.copy()


class _Table(NamedTuple):
    """The header's table: its tensors in the order named, which lie back to back in so many bytes."""

    entries: list[_Entry]
    size: int

    @classmethod
    def of(cls, described: Mapping[str, object], max_tensors: int) -> "_Table":
        if len(described) > max_tensors:
            raise FrameLimitError("tensors", len(described), max_tensors)
        entries = [_Entry.parse(name, description) for name, description in described.items()]
        return cls(entries, _contiguous(sorted(entries)))


def _known(header: str, max_tensors: int) -> tuple[object, _Table | None]:
    """The metadata of a header that begins with it and its table, which most posts of a run have in common; else None.

    What is wrong with a header is told by whoever reads the whole of it.
    """
    begins = _METADATA_FIRST.match(header)
    if begins is None or len(header) > LARGEST_KNOWN or "\\u" in header:
        return None, None
    try:
        metadata, end = STRICT.raw_decode(header, begins.end())
        return metadata, _table(header[end:].strip(), max_tensors)
    except (ValueError, RecursionError, FrameError):
        return None, None


@lru_cache(TABLES_KNOWN)
def _table(text: str, max_tensors: int) -> _Table:
    """The table that stands behind the metadata. ValueError or FrameError for any other text."""
    described = STRICT.decode("{" + text.removeprefix(","))
    if not text.startswith(",") or METADATA_KEY in described:
        raise ValueError("no table, or another metadata")
    return _Table.of(described, max_tensors)


def _split(body: memoryview, max_header_bytes: int) -> tuple[str, memoryview]:
    if len(body) < 8:
        raise FrameError("shorter than the eight bytes of the header's length")
    (length,) = struct.unpack_from("<Q", body)
    if length > len(body) - 8:
        raise FrameError("the header is said to be longer than the body")
    if length > max_header_bytes:
        raise FrameLimitError("header", length, max_header_bytes)
    try:
        return str(body[8 : 8 + length], "utf-8"), body[8 + length :]
    except ValueError as error:
        raise FrameError(f"the header is not valid JSON: {error}") from error


def _envelope(metadata: object) -> dict[str, object]:
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise FrameError(f"{METADATA_KEY} must be an object of strings")
    text = metadata.get(ENVELOPE_KEY)
    return {} if text is None else _object(f"{METADATA_KEY}.{ENVELOPE_KEY}", text)


def _object(what: str, text: str) -> dict[str, object]:
    """Parse JSON strictly: UTF-8 also behind escapes, one object, no repeated key, no NaN or Infinity."""
    try:
        value = STRICT.decode(text)
        if "\\u" in text:
            # Half of a surrogate pair, which only an escape can spell: no UTF-8 and so no answer can hold it.
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise FrameError(f"{what} is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise FrameError(f"{what} is not a JSON object")
    return value


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    unique = dict(pairs)
    if len(unique) < len(pairs):
        raise ValueError("a key is repeated")
    return unique


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


STRICT = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_no_constant)
_METADATA_FIRST = re.compile(rf'\s*{{\s*"{METADATA_KEY}"\s*:\s*')


def _check_naturals(name: str, what: str, value: object, most: int) -> None:
    if not isinstance(value, list) or len(value) > most:
        raise FrameError(f"{what} of {quoted(name)} must be at most {most} integers")
    for entry in value:
        # type() and not isinstance(): True is an int to Python, but not a size.
        if type(entry) is not int:
            raise FrameError(f"{what} of {quoted(name)} must be at most {most} integers")
        if not 0 <= entry <= MAX_TENSOR_BYTES:
            raise FrameError(f"{what} of {quoted(name)} is out of range")


def _contiguous(entries: Iterable[_Entry]) -> int:
    """How many bytes tensors take that lie back to back."""
    reached = 0
    for entry in entries:
        if entry.start != reached:
            raise FrameError(f"{quoted(entry.name)} leaves a hole or overlaps another tensor")
        reached = entry.end
    return reached


def _written_dtype(name: str, array: NDArray[Any], bfloat16: bool) -> str:
    dtype = array.dtype.newbyteorder("<")
    if bfloat16:
        if dtype != np.dtype("<u2"):
            raise FrameError(f"{quoted(name)} is to be written as bfloat16 and must hold uint16 bit patterns")
        return "BF16"
    if dtype not in WRITTEN:
        raise FrameError(f"{quoted(name)} has the dtype {array.dtype}, which safetensors lacks")
    return WRITTEN[dtype]


def _buffer(array: NDArray[Any]) -> memoryview:
    little = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    return little.reshape(-1).view(np.uint8).data
