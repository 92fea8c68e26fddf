"""Values of sent arrays in the few dtypes that columns have: float32 or float64, int64, bool, and expert ids as sent.

Knows one array at a time and nothing of sequences. A value that already has its dtype is not copied.
"""

import numpy as np

from offpolicy_monitor.batch import Array
from offpolicy_monitor.wire.arrays import invalid
from offpolicy_monitor.wire.sent import SentArray


def floats(sent: SentArray, dtype: np.dtype[np.floating]) -> Array:
    """Values as float32 or float64; narrower ones are widened exactly, wider ones rounded (beyond range: infinite)."""
    values = sent.values
    if values.dtype == dtype:
        return values
    if sent.dtype == "bfloat16":
        values = (values.astype(np.uint32) << 16).view(np.float32)
    # A signalling NaN counts as an invalid operation when it is converted; it stays a NaN, which is all that is asked.
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return values.astype(dtype, copy=False)


def integers(sent: SentArray) -> Array:
    """Values as int64. Raises Refusal 422 for an unsigned value beyond it."""
    values = sent.values
    if values.dtype == np.uint64 and len(values) and values.max() > np.iinfo(np.int64).max:
        raise invalid(sent.name, "an integer is beyond 64 bits, signed")
    return values.astype(np.int64, copy=False)


def booleans(name: str, dtype: str, values: Array) -> Array:
    """A mask as bool; bytes of 0 and 1 are viewed, not copied. Raises Refusal 422 for any other value (NaN too)."""
    if values.dtype == np.bool_ or values.dtype == np.uint8:
        # The bytes of a bool tensor are the client's, and numpy's bool is undefined for any but 0 and 1.
        octets = values.view(np.uint8)
        valid = not len(octets) or np.maximum.reduce(octets) <= 1
        result = octets.view(np.bool_)
    else:
        # Minus zero is a zero: the sign bit of a bfloat16 pattern does not count.
        ones, zeros = (values == 0x3F80, values & 0x7FFF == 0) if dtype == "bfloat16" else (values == 1, values == 0)
        valid = bool((ones | zeros).all())
        result = ones
    if not valid:
        raise invalid(name, "an entry is neither 0 nor 1")
    return result
