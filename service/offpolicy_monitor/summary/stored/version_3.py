"""Version 3 of the stored form: the arrays of a summary as one buffer, of which what is not zero is written.

zstd of a JSON header (keys of tables, specs, what is absent, ids) and of columns of numbers: where the buffer is not
zero as steps, and what it is there. A buffer's tables are read as the
stored version had them, so that a row that came later is known to be absent.
"""

import json
import struct
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np
import zstandard

from offpolicy_monitor.summary.arrays import Array, Arrays
from offpolicy_monitor.summary.layout import LAYOUT
from offpolicy_monitor.summary.rows import VERSION, Layout
from offpolicy_monitor.summary.scheme import COUNTS, MAXIMA, MINIMA, SUMS, Scheme, scheme_of
from offpolicy_monitor.summary.step import StepSummary
from offpolicy_monitor.summary.stored import columns, worst_columns
from offpolicy_monitor.summary.stored.packing import TooLargeError
from offpolicy_monitor.summary.tables.worst import Worst

#: Level 3 saves 4 % of the bytes for half as much time again.
LEVEL: Final = 1
_LENGTH: Final = struct.Struct("<I")

#: Raises where a summary has other tables than it may have.
Check = Callable[[Sequence[str], Any], None]


def write(summary: StepSummary) -> bytes:
    """The bytes of a summary but for the version. ValueError for NaN and infinity."""
    arrays = summary.arrays
    worst, ids = worst_columns.columns_of(summary.worst)
    found = [*_buffer(arrays), *_sparse(arrays), *worst]
    header = {
        "keys": "\n".join(arrays.scheme.keys),
        "specs": summary.specs,
        "absent": sorted(arrays.absent),
        "ids": ids,
        "columns": list(map(columns.size, found)),
    }
    text = json.dumps(header, allow_nan=False, separators=(",", ":")).encode()
    return zstandard.compress(b"".join([_LENGTH.pack(len(text)), text, *map(columns.written, found)]), LEVEL)


def read(stored: bytes, version: int = VERSION, layout: Layout = LAYOUT) -> StepSummary:
    """Read what `write` wrote; any error where the bytes are something else."""
    return parsed(content(stored), version, layout)


def content(stored: bytes, most: int = 0) -> bytes:
    """The bytes decompressed; TooLargeError past `most`, 0 for any, ValueError where their number is not said."""
    size = zstandard.frame_content_size(stored)
    if size < 0:
        raise ValueError("of no known size")
    if most and size > most:
        raise TooLargeError(most)
    return zstandard.ZstdDecompressor().decompress(stored, allow_extra_data=False)


def parsed(
    found: bytes, version: int = VERSION, layout: Layout = LAYOUT, check: Check = lambda keys, specs: None
) -> StepSummary:
    """The summary of decompressed bytes; `check` sees the keys of its tables and its specs before any array is made."""
    text = header_of(found)
    header = json.loads(text)
    check(header["keys"].split("\n") if header["keys"] else [], header["specs"])
    numbers = columns.read(found, _LENGTH.size + len(text), header["columns"])
    scheme = _scheme(layout, header["keys"], version)
    arrays = Arrays(scheme)
    _fill(arrays, numbers)
    for name in scheme.sparse:
        arrays.sparse[name] = next(numbers), next(numbers)
    worst, ids = list(numbers), header["ids"]
    arrays.absent = frozenset(header["absent"])
    return StepSummary(newest(arrays), header["specs"], Worst.later(lambda: worst_columns.sequences_of(worst, ids)))


def header_of(found: bytes) -> bytes:
    """The header of decompressed bytes."""
    (length,) = _LENGTH.unpack_from(found)
    return found[_LENGTH.size : _LENGTH.size + length]


def newest(arrays: Arrays) -> Arrays:
    """The same in the newest version of its tables: a later row is absent where its table counts anything."""
    old = arrays.scheme
    if old.version >= old.layout.version:
        return arrays
    scheme = scheme_of(old.layout, old.keys)
    counting = {old.key_of[name] for name in old.spans if arrays[name].any()}
    lacking = {name for name in scheme.spans.keys() - old.spans.keys() if scheme.key_of[name] in counting}
    lacking |= {table.key for table in old.layout.tables if table.since > old.version and counting}
    found = Arrays(scheme, None, arrays.sparse, arrays.absent)
    for name in old.spans:
        found[name][...] = arrays[name]
    return found.lacking(lacking)


@lru_cache(512)
def _scheme(layout: Layout, keys: str, version: int) -> Scheme:
    return scheme_of(layout, tuple(keys.split("\n")) if keys else (), version)


def _buffer(arrays: Arrays) -> Iterator[Array]:
    """Where counts and sums are not zero, as steps, and what they are; then the extremes."""
    counts, *others = arrays.sections
    for section in (counts, others[0]):
        places = np.flatnonzero(section.view(np.int64))
        yield columns.whole(np.diff(places, prepend=0))
        yield columns.whole(section[places]) if section is counts else _finite(section[places])
    yield np.concatenate(others[1:])


def _fill(arrays: Arrays, numbers: Iterator[Array]) -> None:
    for section in (COUNTS, SUMS):
        steps, values = next(numbers), next(numbers)
        arrays.sections[section][np.cumsum(steps, dtype=np.int64)] = values
    extremes = next(numbers)
    minima = arrays.scheme.sizes[MINIMA]
    arrays.sections[MINIMA][...] = extremes[:minima]
    arrays.sections[MAXIMA][...] = extremes[minima:]


def _sparse(arrays: Arrays) -> Iterator[Array]:
    for name in arrays.scheme.sparse:
        numbers, counts = arrays.at(name)
        yield numbers
        yield columns.whole(counts)


def _finite(values: Array) -> Array:
    if not np.isfinite(values).all():
        raise ValueError("NaN and infinity cannot be stored")
    return values
