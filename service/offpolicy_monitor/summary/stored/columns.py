"""Columns of numbers as bytes: in the narrowest dtype that holds them.

Knows what a column is, and nothing of what is in it.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from offpolicy_monitor.summary.arrays import Array

_WHOLE: Final = ("<u1", "<u2", "<u4", "<u8")
#: By how many bytes hold a number.
_OF_BYTES: Final = tuple(np.dtype(_WHOLE[index]) for index in (0, 0, 1, 2, 2, 3, 3, 3, 3))
_DTYPES: Final = frozenset(("|u1", *_WHOLE[1:], "<i8", "<f4", "<f8"))

_NONE: Final = np.zeros(0, _WHOLE[0])

#: Bytes of a number from which on they are parted by significance: of shorter ones that costs time and saves nothing.
_PARTED: Final = 4

#: A column's dtype and length.
Size = tuple[str, int]


def whole(values: Array) -> Array:
    """Whole numbers from 0 on in as few bytes as hold them. ValueError below 0."""
    if not len(values):
        return _NONE
    bits = int(np.bitwise_or.reduce(values))  # as many as the largest has; below 0 where a number is
    if bits < 0:
        raise ValueError("a count below 0 cannot be stored")
    return values.astype(_OF_BYTES[(bits.bit_length() + 7) // 8])


def steps(where: Array) -> Array:
    """Numbers that ascend from 0 on, as how far each is from the one before."""
    apart = where.copy()
    apart[1:] -= where[:-1]
    return whole(apart)


def fractions(values: Array) -> Array:
    """Fractions and NaN in float32 where it holds all of them exactly; whole numbers, of either sign, as they are."""
    if values.dtype == np.float32:
        return values
    if values.dtype.kind in "iu":
        return values.astype("<i8")
    with np.errstate(over="ignore"):
        singles = values.astype("<f4")
    return singles if ((singles == values) | (values != values)).all() else values


def size_of(column: Array) -> str:
    """What is needed to read it again, a Size as JSON."""
    return f'["{column.dtype.str}",{len(column)}]'


def written(column: Array) -> bytes:
    """Its bytes; those of equal significance together where that saves some."""
    if column.itemsize < _PARTED:
        return column.tobytes()
    return np.ascontiguousarray(column).view(np.uint8).reshape(-1, column.itemsize).T.tobytes()


def length(size: Size) -> int:
    """How many bytes a column takes. ValueError for one that there cannot be."""
    name, number = size
    if name not in _DTYPES or number < 0:
        raise ValueError(f"no column: {name!r:.20} {number!r:.20}")
    return number * int(name[2])


def read(found: bytes, sizes: Sequence[Size]) -> Iterator[Array]:
    """The columns that bytes are; ValueError where some are missing or left over."""
    start = 0
    for size in sizes:
        flat = np.frombuffer(found, np.uint8, length(size), start)
        start += len(flat)
        dtype = np.dtype(size[0])
        if dtype.itemsize >= _PARTED:
            flat = np.ascontiguousarray(flat.reshape(dtype.itemsize, -1).T)
        yield flat.view(dtype).reshape(-1)
    if start != len(found):
        raise ValueError(f"{len(found)} bytes where {start} were written")
