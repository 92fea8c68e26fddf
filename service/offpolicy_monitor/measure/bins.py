"""The bins of summary.histogram for tensors: joins the layout that summary defines with the kernel that core has."""

from functools import cache

import torch
from torch import Tensor

from offpolicy_monitor.core.histogram import Layout, bin_numbers
from offpolicy_monitor.summary import histogram


def histogram_bins(*arrays: Tensor) -> list[Tensor]:
    """The bin of summary.histogram of each value of some arrays: [...] float each, no NaN -> [...] int32 each.

    All are found together.
    """
    bins = layout(arrays[0].device)
    values = [array.float().flatten() for array in arrays]
    flat = bin_numbers(values[0] if len(values) == 1 else torch.cat(values), bins)
    parts = torch.split(flat, [array.numel() for array in arrays])
    return [part.view(array.shape) for part, array in zip(parts, arrays, strict=True)]


@cache
def layout(device: torch.device) -> Layout:
    """The layout of summary.histogram on a device."""
    return Layout(
        histogram.SMALLEST_EXPONENT,
        histogram.LARGEST_EXPONENT,
        histogram.MANTISSA_BITS,
        torch.from_numpy(histogram.splits()).to(device, non_blocking=True),
    )
