"""The kernel that puts log-ratios into the bins of a signed log-linear histogram.

The bin of a value is read off the top bits of its float32 pattern (sign, exponent, first mantissa bits): no
logarithm, no search. The layout of the bins is given by the caller; what the counts mean is not known here.
Source of log-linear histograms: HdrHistogram, https://hdrhistogram.org
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from offpolicy_monitor.core.checks import check


@dataclass(frozen=True, eq=False)
class Layout:
    """Magnitudes 2**smallest .. 2**largest in 2**mantissa_bits parts per power of two; `splits` [2K+1] float32 cuts
    bins in two.

    No bin is cut where `splits` is empty. Its device is that of the values. Raises ValueError for splits of another
    shape, TypeError for another dtype.
    K is the largest key, 1 + (largest - smallest) * 2**mantissa_bits. Bin 2 * (K + signed key), plus 1 above the split.
    """

    smallest_exponent: int
    largest_exponent: int
    mantissa_bits: int
    splits: Tensor

    def __post_init__(self) -> None:
        check("splits", self.splits, 2 * self.largest_key + 1 if len(self.splits) else 0, of=(torch.float32,))

    @property
    def largest_key(self) -> int:
        """K: the key of magnitudes of 2**largest_exponent and more."""
        return 1 + ((self.largest_exponent - self.smallest_exponent) << self.mantissa_bits)

    @property
    def bins(self) -> int:
        """Number of bins."""
        return 2 * (2 * self.largest_key + 1)


def bin_numbers(values: Tensor, layout: Layout) -> Tensor:
    """The bin of each value: [..., n] float32 or float64, no NaN -> [..., n] int32.

    Raises ValueError for a single number, TypeError for another dtype.
    """
    check("values", values)
    [bins] = bins_by([(layout, values.numel())], values.float().reshape(-1))
    return bins.view(values.shape)


def bins_by(layouts: Sequence[tuple[Layout, int]], values: Tensor) -> list[Tensor]:
    """The bins of the first so many values by the first layout, of the next by the second: [n] float32, no NaN -> [own
    number] int32 each.

    The tops of their patterns are taken together. Raises ValueError for another rank or another sum of numbers,
    TypeError for another dtype.
    """
    check("values", values, sum(number for _, number in layouts), of=(torch.float32,))
    bits, sizes = max(layout.mantissa_bits for layout, _ in layouts), [number for _, number in layouts]
    tops = (values.view(torch.int32) >> (23 - bits)).add_(1 << (8 + bits))
    found = []
    for (layout, _), own, top in zip(layouts, *(torch.split(part, sizes) for part in (values, tops)), strict=True):
        bins, splits = _by_top(layout, bits)
        lower = bins.index_select(0, top)
        found.append(lower if splits is None else lower.add_(own > splits.index_select(0, top)))
    return found


@cache
def _by_top(layout: Layout, bits: int) -> tuple[Tensor, Tensor | None]:
    """[2**(9 + bits)] each: the lower bin and the split of every top of a pattern with so many mantissa bits, which are
    as many as the layout's or more."""
    half = 1 << (8 + bits)
    tops = torch.arange(-half, half)
    base = ((127 + layout.smallest_exponent) << layout.mantissa_bits) - 1
    keys = (((tops & (half - 1)) >> (bits - layout.mantissa_bits)) - base).clamp(0, layout.largest_key)
    indices = (torch.where(tops < 0, -keys, keys) + layout.largest_key).to(layout.splits.device, non_blocking=True)
    return (2 * indices).int(), layout.splits.index_select(0, indices) if len(layout.splits) else None
