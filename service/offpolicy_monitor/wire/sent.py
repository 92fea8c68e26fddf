"""SentArray: one array as it came, in a form that no longer tells the media types apart.

Knows a single array: whether its entries lie in one flat list or in rows, and what dtype they had. Whether arrays agree
with each other is the layout's business.

Shapes: N entries; S rows; inner dimensions behind the position are [layers, k] for expert ids and none for the rest.
"""

from typing import NamedTuple

from offpolicy_monitor.batch import Array
from offpolicy_monitor.wire.arrays import ARRAYS, DTYPES, MAX_LAYERS, MAX_TOP_K, ArrayRow, invalid
from offpolicy_monitor.wire.limits import Limits


class SentArray(NamedTuple):
    """One array of a body.

    values [N, *inner]: row after row; bfloat16 as uint16 bit patterns
    widths [S] int64: entries of each row, or None where the array came as one flat list
    dtype: its name on the wire; numbers of JSON count as float32 and int64
    """

    name: str
    dtype: str
    values: Array
    widths: Array | None = None

    @property
    def row(self) -> ArrayRow:
        """The contract's row for this array."""
        return ARRAYS[self.name]


def check_dtype(name: str, dtype: str) -> None:
    """Refuse a dtype that the contract does not list for this array."""
    allowed = DTYPES[ARRAYS[name].kind]
    if dtype not in allowed:
        raise invalid(name, f"dtype {dtype} is not among {', '.join(sorted(allowed))}")


def check_inner(name: str, count: int, inner: tuple[int, ...]) -> None:
    """Refuse [layers, k] that no model has, which would size what is kept per layer."""
    if not inner:
        return
    layers, k = inner
    if layers > MAX_LAYERS or k > MAX_TOP_K or (count and 0 in inner):
        raise invalid(name, f"{layers} layers and top-{k} are not from 1 to {MAX_LAYERS} and from 1 to {MAX_TOP_K}")


def check_rows(name: str, sequences: int, longest: int, positions: int, limits: Limits) -> None:
    """Refuse rows over the limits, before anything is allocated for them."""
    limits.check("max_sequences", name, sequences)
    limits.check("max_sequence_length", name, longest)
    limits.check("max_tokens", name, positions)
