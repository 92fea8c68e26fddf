"""Reads the protobuf exposition by the numbers of client_model's metrics.proto, with none of the writer's code."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

VALUES = {"gauge": 2, "counter": 3, "untyped": 5}
TYPES = {0: "counter", 1: "gauge", 3: "untyped", 4: "histogram"}
Fields = dict[int, list[Any]]


@dataclass
class Buckets:
    """A Histogram: classic counts by upper bound, native ones by the index of their bucket on each side."""

    count: int
    sum: float
    classic: dict[float, int]
    schema: int | None = None
    zero_threshold: float = 0.0
    zero_count: int = 0
    negative: dict[int, int] = field(default_factory=dict)
    positive: dict[int, int] = field(default_factory=dict)


@dataclass
class Family:
    """A MetricFamily: samples by their labels, sorted."""

    type: str
    help: str
    samples: dict[tuple[tuple[str, str], ...], float | Buckets]


def families(body: bytes) -> dict[str, Family]:
    """Every family by its name; each name once."""
    found: dict[str, Family] = {}
    at = 0
    while at < len(body):
        length, at = varint(body, at)
        name, family = _family(fields(body[at : at + length]))
        assert name not in found
        found[name], at = family, at + length
    assert at == len(body)
    return found


def _family(message: Fields) -> tuple[str, Family]:
    type = TYPES[message[3][0]]
    samples = dict(_sample(type, fields(metric)) for metric in message.get(4, ()))
    assert len(samples) == len(message.get(4, ()))
    return message[1][0].decode(), Family(type, message[2][0].decode(), samples)


def _sample(type: str, metric: Fields) -> tuple[tuple[tuple[str, str], ...], float | Buckets]:
    pairs = [fields(pair) for pair in metric.get(1, ())]
    labels = tuple(sorted((pair[1][0].decode(), pair[2][0].decode()) for pair in pairs))
    if type == "histogram":
        return labels, _buckets(fields(metric[7][0]))
    return labels, fields(metric[VALUES[type]][0])[1][0]


def _buckets(message: Fields) -> Buckets:
    classic = [fields(bucket) for bucket in message.get(3, ())]
    found = Buckets(message[1][0], message[2][0], {bucket[2][0]: bucket[1][0] for bucket in classic})
    if 5 in message:
        found.schema = signed(message[5][0])
        found.zero_threshold, found.zero_count = message[6][0], message[7][0]
        found.negative, found.positive = _side(message, 9, 10), _side(message, 12, 13)
    return found


def _side(message: Fields, spans: int, deltas: int) -> dict[int, int]:
    steps = iter(_packed(message.get(deltas, [b""])[0]))
    counts, index, count = {}, 0, 0
    for span in map(fields, message.get(spans, ())):
        index += signed(span[1][0])
        for _ in range(span[2][0]):
            count += next(steps)
            counts[index] = count
            index += 1
    assert next(steps, None) is None
    return counts


def _packed(content: bytes) -> Iterator[int]:
    at = 0
    while at < len(content):
        value, at = varint(content, at)
        yield signed(value)


def fields(message: bytes) -> Fields:
    """Field number -> values: integers, doubles, or bytes."""
    found: Fields = {}
    at = 0
    while at < len(message):
        key, at = varint(message, at)
        value: Any
        if key & 7 == 0:
            value, at = varint(message, at)
        elif key & 7 == 1:
            (value,), at = struct.unpack_from("<d", message, at), at + 8
        else:
            assert key & 7 == 2
            length, at = varint(message, at)
            value, at = message[at : at + length], at + length
        found.setdefault(key >> 3, []).append(value)
    assert at == len(message)
    return found


def varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value, at, shift = value | (byte & 0x7F) << shift, at + 1, shift + 7
        if not byte & 0x80:
            return value, at


def signed(value: int) -> int:
    return value >> 1 ^ -(value & 1)
