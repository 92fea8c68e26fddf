"""What depends on the order of a sequence's tokens, or of their values: running sums, and values in ascending order.

Shapes: T packed tokens of N non-empty sequences (core.ragged), on any device.
"""

from typing import Final

import torch
from torch import Tensor

from offpolicy_monitor.core.checks import FLOATS, MARKS, check
from offpolicy_monitor.core.ragged import Segments

#: Bits of a sum of integers.
_BITS: Final = 62


def counts_before(marks: Tensor, segments: Segments) -> Tensor:
    """How many of the tokens before each in its sequence are marked: [..., T] bool -> [..., T] int64.

    Raises ValueError for another length, TypeError for another dtype.
    """
    check("marks", marks, *marks.shape[:-1], segments.tokens, of=MARKS)
    return _before(marks.long(), segments)


def sums_before(values: Tensor, segments: Segments, most: float) -> Tensor:
    """Sum of what comes before each token in its sequence: [..., T] float -> [..., T] float64; values from 0 on.

    What is larger than `most` counts as that. Two running sums of integers over all tokens, whatever the sequences: as
    a part of `most` each value is a multiple of 2^-e and one of 2^-2e, where T times 2^e fits into an integer. So what
    came before a sequence is taken away exactly, and no value takes digits from another. Of a million tokens the
    smallest part is `most` * 2^-82. Raises ValueError for another length, TypeError for another dtype.
    """
    check("values", values, *values.shape[:-1], segments.tokens, of=FLOATS)
    bits = _BITS - segments.tokens.bit_length()
    unit = most * 2.0**-bits
    scaled = values.double().clamp(max=most) * (1 / unit)
    parts = torch.stack([scaled, scaled.frac() * 2.0**bits]).long()
    first, second = _before(parts, segments).double().unbind()
    return torch.add(first, second, alpha=2.0**-bits) * unit


def _before(values: Tensor, segments: Segments) -> Tensor:
    """The sum of the integers before each token in its sequence: [..., T] int64 -> the same."""
    before = values.cumsum(-1) - values
    return before - segments.spread(before.index_select(-1, segments.starts))


def ascending(values: Tensor, segments: Segments) -> Tensor:
    """Each sequence's values in ascending order: [..., T] float -> [..., T], the same dtype.

    Raises ValueError for a single number or another length, TypeError for another dtype.
    """
    check("values", values, *values.shape[:-1], segments.tokens, of=FLOATS)
    ordered = values.argsort(-1)
    return values.gather(-1, ordered.gather(-1, segments.owners.take(ordered).argsort(stable=True, dim=-1)))
