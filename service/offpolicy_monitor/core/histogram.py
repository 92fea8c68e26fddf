"""The kernel that puts log-ratios into the bins of a signed log-linear histogram.

The bin of a value is read off the top bits of its float32 pattern (sign, exponent, first mantissa bits): no
logarithm, no search. The layout of the bins is given by the caller; what the counts mean is not known here.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Layout:
    """Magnitudes 2**smallest .. 2**largest in 2**mantissa_bits parts a power; `splits` [2K+1] float32 cuts bins in two.

    K is the largest key, 1 + (largest - smallest) * 2**mantissa_bits. Bin 2 * (K + signed key), plus 1 above the split.
    """

    smallest_exponent: int
    largest_exponent: int
    mantissa_bits: int
    splits: Tensor

    @property
    def largest_key(self) -> int:
        """K: the key of magnitudes of 2**largest_exponent and more."""
        return 1 + ((self.largest_exponent - self.smallest_exponent) << self.mantissa_bits)

    @property
    def bins(self) -> int:
        """Number of bins."""
        return 2 * (2 * self.largest_key + 1)


def bin_numbers(values: Tensor, layout: Layout) -> Tensor:
    """The bin of each value: [...] float, no NaN -> [...] int32."""
    values = values.float()
    shift = 23 - layout.mantissa_bits
    just_below = 2.0**layout.smallest_exponent * (1 - 2.0 ** -(layout.mantissa_bits + 1))
    magnitude = values.abs().clamp_(just_below, 2.0**layout.largest_exponent)
    base = ((127 + layout.smallest_exponent) << layout.mantissa_bits) - 1
    key = (magnitude.view(torch.int32) >> shift).sub_(base)
    sign = values.view(torch.int32) >> 31  # 0, or -1 for negative values: (key ^ sign) - sign is +-key
    place = (key ^ sign).sub_(sign).add_(layout.largest_key)
    above = values.clone().gt_(layout.splits.index_select(0, place.reshape(-1)).view_as(place)).int()
    return place.mul_(2).add_(above)
