"""The bins of summary.histogram for tensors: joins the layout that summary defines with the kernel that core has."""

from functools import cache

import torch
from torch import Tensor

from offpolicy_monitor.core.histogram import Layout, bin_numbers
from offpolicy_monitor.summary import histogram


def histogram_bins(*arrays: Tensor) -> Tensor:
    """The bin of summary.histogram of each value of some arrays: [n] float each, no NaN -> [sum of n] int32."""
    number, device = sum(map(len, arrays)), arrays[0].device
    values = torch.cat(arrays, out=torch.empty(number, dtype=torch.float32, device=device))
    return bin_numbers(values, layout(device))


@cache
def layout(device: torch.device) -> Layout:
    """The layout of summary.histogram on a device."""
    return Layout(
        histogram.SMALLEST_EXPONENT,
        histogram.LARGEST_EXPONENT,
        histogram.MANTISSA_BITS,
        torch.from_numpy(histogram.splits()).to(device, non_blocking=True),
    )
