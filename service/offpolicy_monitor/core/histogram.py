"""The kernel that puts log-ratios into the bins of a signed log-linear histogram.

The bin of a value is read off the top bits of its float32 pattern (sign, exponent, first mantissa bits): no
logarithm, no search. The layout of the bins is given by the caller; what the counts mean is not known here.
Source of log-linear histograms: HdrHistogram, https://hdrhistogram.org
"""

from dataclasses import dataclass
from functools import cached_property

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

    @cached_property
    def by_pattern(self) -> tuple[Tensor, Tensor | None]:
        """[2**(9 + mantissa_bits)] each: of every top of a pattern, as a signed integer, its lower bin and split."""
        half = 1 << (8 + self.mantissa_bits)
        tops = torch.arange(-half, half)
        base = ((127 + self.smallest_exponent) << self.mantissa_bits) - 1
        keys = ((tops & (half - 1)) - base).clamp(0, self.largest_key)
        indices = (torch.where(tops < 0, -keys, keys) + self.largest_key).to(self.splits.device, non_blocking=True)
        return (2 * indices).int(), self.splits.index_select(0, indices) if len(self.splits) else None


def bin_numbers(values: Tensor, layout: Layout) -> Tensor:
    """The bin of each value: [..., n] float32 or float64, no NaN -> [..., n] int32.

    Raises ValueError for a single number, TypeError for another dtype.
    """
    check("values", values)
    values = values.float().contiguous()
    bins, splits = layout.by_pattern
    tops = (values.view(torch.int32) >> (23 - layout.mantissa_bits)).add_(len(bins) // 2).view(-1)
    lower = bins.index_select(0, tops).view_as(values)
    return lower if splits is None else lower.add_(values > splits.index_select(0, tops).view_as(values))
