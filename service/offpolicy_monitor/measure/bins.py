"""The bins of values for tensors: joins the layouts that summary defines with the kernel that core has."""

from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor

from offpolicy_monitor.core.histogram import Layout, bins_by
from offpolicy_monitor.summary import histogram
from offpolicy_monitor.summary.tables import advantage


def bins_of(arrays: Sequence[Tensor], masses: Sequence[Tensor] = ()) -> tuple[Tensor, Tensor]:
    """The bin of summary.histogram of each value of some arrays, and the one of summary.tables.advantage of each of
    some masses: [n] float each, no NaN -> [sum of n] int32 of either."""
    device, sizes = arrays[0].device, [sum(map(len, part)) for part in (arrays, masses)]
    values = torch.cat([*arrays, *masses], out=torch.empty(sum(sizes), dtype=torch.float32, device=device))
    of_arrays, of_masses = bins_by([(layout(device), sizes[0]), (mass_layout(device), sizes[1])], values)
    return of_arrays, of_masses


@cache
def layout(device: torch.device) -> Layout:
    """The layout of summary.histogram on a device."""
    return Layout(
        histogram.SMALLEST_EXPONENT,
        histogram.LARGEST_EXPONENT,
        histogram.MANTISSA_BITS,
        torch.from_numpy(histogram.splits()).to(device, non_blocking=True),
    )


@cache
def mass_layout(device: torch.device) -> Layout:
    """The layout of |A r| on a device, of which the bins of one sign are looked at."""
    exponents = advantage.SMALLEST_EXPONENT, advantage.LARGEST_EXPONENT
    return Layout(*exponents, advantage.MANTISSA_BITS, torch.empty(0, device=device))
