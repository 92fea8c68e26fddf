"""Columns of numbers as bytes: in the narrowest dtype that holds them, bytes of equal significance together.

Knows what a column is, and nothing of what is in it.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from offpolicy_monitor.summary.arrays import Array

_WHOLE: Final = ("<u1", "<u2", "<u4", "<u8")
_DTYPES: Final = frozenset(("|u1", *_WHOLE[1:], "<i8", "<f4", "<f8"))

#: A column's dtype and length, as JSON.
Size = tuple[str, int]


def whole(values: Array) -> Array:
    """Whole numbers from 0 on in as few bytes as hold them. ValueError below 0."""
    if values.min(initial=0) < 0:
        raise ValueError("a count below 0 cannot be stored")
    most = int(values.max(initial=0))
    return values.astype(next(dtype for dtype in _WHOLE if most < 1 << 8 * int(dtype[2])))


def fractions(values: Array) -> Array:
    """Fractions and NaN in float32 where it holds all of them exactly."""
    with np.errstate(over="ignore"):
        singles = values.astype("<f4")
    return singles if np.array_equal(singles, values, equal_nan=True) else values


def size(column: Array) -> Size:
    """What is needed to read it again."""
    return column.dtype.str, len(column)


def written(column: Array) -> bytes:
    """Its bytes."""
    if column.itemsize == 1:
        return column.tobytes()
    return np.ascontiguousarray(column).view(np.uint8).reshape(-1, column.itemsize).T.tobytes()


def read(found: bytes, start: int, sizes: Sequence[Size]) -> Iterator[Array]:
    """The columns that begin at a place and end with the bytes; ValueError where some are missing or left over."""
    for name, length in sizes:
        if name not in _DTYPES or length < 0:
            raise ValueError(f"no column: {name!r:.20} {length!r:.20}")
        dtype = np.dtype(name)
        planes = np.frombuffer(found, np.uint8, length * dtype.itemsize, start).reshape(dtype.itemsize, -1)
        start += length * dtype.itemsize
        yield np.ascontiguousarray(planes.T).view(dtype).reshape(-1)
    if start != len(found):
        raise ValueError(f"{len(found)} bytes where {start} were written")
