"""Version 3 of the stored form, and those after it: the arrays of a summary as one buffer.

zstd of two JSON headers (keys of tables, specs, what is absent; ids, sizes of columns) and of columns of numbers: where
the buffer is not zero as steps, and what it is there; the worst sequences. Tables are read as the stored version had
them, so that a row that came later is known to be absent.
"""

import json
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np
import zstandard

from offpolicy_monitor.summary.arrays import Array, Arrays, room_for_fractions
from offpolicy_monitor.summary.layout import LAYOUT
from offpolicy_monitor.summary.merge import among
from offpolicy_monitor.summary.remembered import remembered, remembering
from offpolicy_monitor.summary.rows import Layout
from offpolicy_monitor.summary.scheme import (
    COUNTS,
    MOST_WEIGHT,
    REMEMBERED,
    SUMS,
    Runs,
    Scheme,
    runs_between,
    scheme_of,
)
from offpolicy_monitor.summary.step import StepSummary
from offpolicy_monitor.summary.stored import columns
from offpolicy_monitor.summary.stored.packed_tree import TooLargeError
from offpolicy_monitor.summary.tables.worst import COLUMNS, Sequences, Worst

#: Columns of a buffer: steps and values of counts, the same of sums, extremes.
OF_BUFFER: Final = 5

#: Level 1 saves 1 % of the bytes for a third more time at 2,000 tokens, and twice the time at 1 M.
LEVEL: Final = -1
_LENGTHS: Final = struct.Struct("<2I")
#: Made once: json.dumps makes one at each call that asks for other than its defaults.
_ENCODER: Final = json.JSONEncoder(allow_nan=False, separators=(",", ":"))
#: First headers of shards come back with every step; what is larger than any shard's is not remembered.
LARGEST_SHAPE: Final = 1 << 15

Shape = tuple[tuple[str, ...], Any, frozenset[str]]
#: Raises where a summary has other tables than it may have.
Check = Callable[[Sequence[str], Any], None]


class _AtHand(threading.local):
    """A thread's own: they may not be shared, and making one takes a fifth of what it is made for."""

    def __init__(self) -> None:
        self.compressor = zstandard.ZstdCompressor(level=LEVEL)
        self.decompressor = zstandard.ZstdDecompressor()


_AT_HAND: Final = _AtHand()


def write(summary: StepSummary) -> bytes:
    """The bytes of a summary but for the version. ValueError for NaN and infinity."""
    arrays = summary.arrays
    worst = summary.worst.sequences
    found = [*_buffer(arrays), *_sparse(arrays), *(_worst(worst) if len(worst) else ())]
    sizes = ",".join(map(columns.size_of, found))
    texts = [_shape_of(summary), b"".join([b'{"ids":', _json(worst.told_ids), b',"columns":[', sizes.encode(), b"]}"])]
    return _AT_HAND.compressor.compress(
        b"".join([_LENGTHS.pack(*map(len, texts)), *texts, *map(columns.written, found)])
    )


def _shape_of(summary: StepSummary) -> bytes:
    """The first header. The keys of a shard alone are remembered apart: with labels of its own nobody else has them."""
    arrays, specs = summary.arrays, summary.specs
    scheme = arrays.scheme

    def around() -> tuple[bytes, bytes]:
        rest = _json({"specs": specs, "absent": sorted(arrays.absent)})
        return _json(scheme.base.keys)[:-1], b"]," + rest[1:]

    ahead, behind = remembered(("shape", scheme.base, arrays.absent, tuple(specs)), specs.values(), around)
    return b"".join([b'{"keys":', ahead, b"," if scheme.own and scheme.base.keys else b"", _own(scheme), behind])


@remembering(lambda made, scheme: len(scheme.own), MOST_WEIGHT)
def _own(scheme: Scheme) -> bytes:
    """The keys of a shard alone, one after the other."""
    return _json(scheme.own)[1:-1]


def _json(value: Any) -> bytes:
    return _ENCODER.encode(value).encode()


def read(stored: bytes, version: int, layout: Layout = LAYOUT) -> StepSummary:
    """Read what `write` wrote; any error where the bytes are something else."""
    return parsed(content(stored), version, layout)


def content(stored: bytes, most: int = 0) -> bytes:
    """The bytes decompressed; TooLargeError past `most`, 0 for any, ValueError where their number is not said."""
    size = zstandard.frame_content_size(stored)
    if size < 0:
        raise ValueError("of no known size")
    if most and size > most:
        raise TooLargeError(most)
    found: bytes = _AT_HAND.decompressor.decompress(stored, allow_extra_data=False)
    return found


def parsed(found: bytes, version: int, layout: Layout = LAYOUT, check: Check = lambda keys, specs: None) -> StepSummary:
    """The summary of decompressed bytes; `check` sees the keys of its tables and its specs before any array is made."""
    shape, own = headers_of(found)
    read_shape = _known_shape if len(shape) <= LARGEST_SHAPE else _shape
    keys, specs, absent = read_shape(shape)
    check(keys, specs)
    header, scheme = json.loads(own), scheme_of(layout, keys, version)
    ahead, sizes = OF_BUFFER + 2 * len(scheme.sparse), header["columns"]
    begin = _LENGTHS.size + len(shape) + len(own)
    end = begin + sum(map(columns.length, sizes[:ahead]))
    numbers, rest = columns.read(found[begin:end], sizes[:ahead]), found[end:]
    arrays = _arrays(scheme, numbers)
    arrays.absent = absent
    numbers_of_worst = sum(number for _, number in sizes[ahead:])

    def read() -> Sequences:
        """Of more columns than are known here, those are left out."""
        return Sequences.of_columns([*columns.read(rest, sizes[ahead:])][: len(COLUMNS)], header["ids"])

    return StepSummary(newest(arrays), specs, Worst((read,), numbers_of_worst) if rest else Worst())


def headers_of(found: bytes) -> tuple[bytes, bytes]:
    """The two headers of decompressed bytes."""
    first, second = _LENGTHS.unpack_from(found)
    middle = _LENGTHS.size + first
    return found[_LENGTHS.size : middle], found[middle : middle + second]


@lru_cache(REMEMBERED)
def _known_shape(text: bytes) -> Shape:
    """The same, with one object for equal specs, by which what is made of them is remembered."""
    keys, specs, absent = _shape(text)
    return keys, _known_specs(json.dumps(specs)), absent


_known_specs: Final = lru_cache(REMEMBERED)(json.loads)


def _shape(text: bytes) -> Shape:
    """Keys, specs and what is absent, of the first header."""
    shape = json.loads(text)
    return tuple(shape["keys"]), shape["specs"], frozenset(shape["absent"])


def newest(arrays: Arrays) -> Arrays:
    """The same in the newest version of its tables: a later row is absent where its table counts anything."""
    old = arrays.scheme
    if old.version >= old.layout.version:
        return arrays
    scheme = scheme_of(old.layout, old.keys)
    lacking = {name for key, names in _later(old, scheme) if _counts_at(arrays, key) for name in names}
    if len(arrays.filled[0]) or any(section.any() for section in arrays.fractions):
        lacking |= {table.key for table in old.layout.tables if table.since > old.version}
    return among(arrays, scheme, _moved(old, scheme)).lacking(lacking)


@remembering(lambda made, old, scheme: old.weight + scheme.weight, MOST_WEIGHT)
def _moved(old: Scheme, scheme: Scheme) -> Runs:
    """Where the entries of an older scheme stand in the newest."""
    return runs_between(old, scheme)


@remembering(lambda made, old, scheme: old.weight + scheme.weight, MOST_WEIGHT)
def _later(old: Scheme, scheme: Scheme) -> Sequence[tuple[str, Sequence[str]]]:
    """By table the names of the rows that came later."""
    found = [(key, [*scheme.block(key).rows.keys() - old.block(key).rows.keys()]) for key in old.keys]
    return [(key, names) for key, names in found if names]


def _counts_at(arrays: Arrays, key: str) -> bool:
    return any(arrays.stored_at(span).any() for _, _, span in arrays.scheme.rows(key) if span is not None)


def _buffer(arrays: Arrays) -> Iterator[Array]:
    """Where counts and sums are not zero, as steps, and what they are; then the extremes."""
    sums, *extremes = arrays.fractions
    where, counts = arrays.filled
    yield columns.steps(where)
    yield columns.whole(counts)
    (where,) = (sums.view(np.int64) != 0).nonzero()
    yield columns.steps(where)
    yield _finite(sums[where])
    yield np.concatenate(extremes)


def _arrays(scheme: Scheme, numbers: Iterator[Array]) -> Arrays:
    steps, counts, of_sums, sums, extremes = (next(numbers) for _ in range(OF_BUFFER))
    counts = _whole(counts)
    where, fractions = _ascending(steps, scheme.sizes[COUNTS]), room_for_fractions(scheme)
    if len(counts) != len(where):
        raise ValueError(f"{len(counts)} counts of {len(where)}")
    begin = scheme.sizes[SUMS]
    ascending = _ascending(of_sums, begin)
    with np.errstate(invalid="ignore"):  # a signalling NaN, which the checks find
        fractions[ascending] = sums
        fractions[begin:] = extremes
    arrays = Arrays.filled_at(scheme, (where, counts.astype(np.int64)), fractions)
    for name in scheme.sparse:
        arrays.sparse[name] = _whole(next(numbers)), _whole(next(numbers))
    return arrays


def _whole(column: Array) -> Array:
    """A column of whole numbers as int64; ValueError for one of fractions, or beyond that."""
    whole = column.astype(np.int64)
    if column.dtype.kind not in "iu" or (column.dtype.kind == "u" and whole.min(initial=0) < 0):
        raise ValueError("fractions, or what no count can be, where whole numbers are")
    return whole


def _ascending(steps: Array, size: int) -> Array:
    """Where each entry of a section stands, from the steps between them; ValueError for two at one, or past all."""
    steps = _whole(steps)
    if (steps[1:] < 1).any() or steps.max(initial=0) > size or steps[:1].min(initial=0) < 0:
        raise ValueError("an entry of a buffer is there twice, or in no table")
    where = np.cumsum(steps, dtype=np.int64)
    if len(where) and where[-1] >= size:
        raise ValueError("an entry of a buffer is in no table")
    return where


def _sparse(arrays: Arrays) -> Iterator[Array]:
    for name in arrays.scheme.sparse:
        numbers, counts = arrays.at(name)
        yield numbers
        yield columns.whole(counts)


def _worst(found: Sequences) -> Iterator[Array]:
    for column, values in zip(COLUMNS, found.columns, strict=False):
        yield columns.whole(values.ravel()) if column.is_whole else columns.fractions(values.ravel())


def _finite(values: Array) -> Array:
    if not np.isfinite(values).all():
        raise ValueError("NaN and infinity cannot be stored")
    return values
