"""The protobuf exposition: messages `io.prometheus.client.MetricFamily`, each after its length.

https://github.com/prometheus/client_model/blob/master/io/prometheus/client/metrics.proto has the fields; the few that
are used here are written directly, as a length and its bytes, a varint or a double. Knows bytes, no families.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from typing import Final

VARINT, DOUBLE, LENGTH = 0, 1, 2
_DOUBLE_BYTES: Final = 8


class Type(IntEnum):
    """MetricType."""

    COUNTER = 0
    GAUGE = 1
    UNTYPED = 3
    HISTOGRAM = 4


#: Of a Metric: the field of its value, by type. All three values are messages whose first field is a double.
VALUE_FIELD: Final = {Type.GAUGE: 2, Type.COUNTER: 3, Type.UNTYPED: 5}
HISTOGRAM_FIELD: Final = 7


def varint(number: int) -> bytes:
    """An unsigned integer, seven bits a byte, the lowest first."""
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def zigzag(number: int) -> int:
    """A signed integer as an unsigned one: 0, -1, 1, -2 become 0, 1, 2, 3."""
    return number << 1 if number >= 0 else (-number << 1) - 1


def key(field: int, kind: int) -> bytes:
    """What stands before a field's value."""
    return varint(field << 3 | kind)


def number(field: int, value: int) -> bytes:
    """An unsigned integer field."""
    return key(field, VARINT) + varint(value)


def signed(field: int, value: int) -> bytes:
    """A field of type sint32 or sint64."""
    return number(field, zigzag(value))


def double(field: int, value: float) -> bytes:
    """A double field."""
    return key(field, DOUBLE) + struct.pack("<d", value)


def sized(field: int, content: bytes) -> bytes:
    """A field of text, bytes or a message."""
    return key(field, LENGTH) + varint(len(content)) + content


def packed(field: int, values: Sequence[int]) -> bytes:
    """A repeated sint64 field; nothing where there are no values."""
    return sized(field, b"".join([varint(zigzag(value)) for value in values])) if values else b""


def label(name: str, value: str) -> bytes:
    """A Metric's LabelPair."""
    return sized(1, sized(1, name.encode()) + sized(2, value.encode()))


def sample(type: Type, labels: bytes, value: float) -> bytes:
    """A family's Metric with one value."""
    return sized(4, labels + sized(VALUE_FIELD[type], double(1, value)))


def bucket(cumulative: int, upper: float) -> bytes:
    """A Histogram's classic Bucket."""
    return sized(3, number(1, cumulative) + double(2, upper))


def spans(field: int, found: Iterable[tuple[int, int]]) -> bytes:
    """A Histogram's BucketSpans: (offset, length)."""
    return b"".join([sized(field, signed(1, offset) + number(2, length)) for offset, length in found])


def histogram(count: int, total: float, buckets: bytes, native: bytes = b"") -> bytes:
    """The content of a Histogram; `native` are its fields from schema on."""
    return number(1, count) + double(2, total) + buckets + native


def family(name: str, help: str, type: Type, metrics: Sequence[bytes]) -> list[bytes]:
    """A MetricFamily with its length before it, in pieces."""
    head = sized(1, name.encode()) + sized(2, help.encode()) + number(3, type)
    return [varint(len(head) + sum(map(len, metrics))) + head, *metrics]


def read_varint(content: bytes, at: int) -> tuple[int, int]:
    """The unsigned integer at an index, and the index after it."""
    found = shift = 0
    while True:
        byte = content[at]
        found |= (byte & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if byte < 0x80:
            return found, at


def fields(message: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Of each field its number, the whole of it, and its value as bytes, of one with a length without that."""
    at = 0
    while at < len(message):
        began = at
        head, at = read_varint(message, at)
        value, kind = at, head & 7
        if kind == LENGTH:
            size, value = read_varint(message, at)
            at = value + size
        elif kind == DOUBLE:
            at += _DOUBLE_BYTES
        else:
            _, at = read_varint(message, at)
        yield head >> 3, message[began:at], message[value:at]
