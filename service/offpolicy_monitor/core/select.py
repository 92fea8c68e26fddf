"""Which tokens lie beyond a threshold: their places, since a rule drops few tokens of a healthy run.

Shapes: T packed tokens; results are places [n] int64, ascending. On the CPU numpy compares and finds them on the same
memory, somewhat faster than torch (`make bench ARGS="--only primitives"`); elsewhere torch does.
"""

import numpy as np
import torch
from torch import Tensor

from offpolicy_monitor.core.divergences import comparable


def places_above(values: Tensor, threshold: float) -> Tensor:
    """Places of values > threshold: [T] -> [n] int64."""
    limit = comparable(threshold, values)
    if values.device.type == "cpu":
        return torch.from_numpy(np.flatnonzero(values.numpy() > limit))
    return torch.nonzero(values > limit).squeeze(1)


def places_below(values: Tensor, threshold: float) -> Tensor:
    """Places of values < threshold: [T] -> [n] int64."""
    limit = comparable(threshold, values)
    if values.device.type == "cpu":
        return torch.from_numpy(np.flatnonzero(values.numpy() < limit))
    return torch.nonzero(values < limit).squeeze(1)


def no_places(values: Tensor) -> Tensor:
    """[0] int64 on the device of the values."""
    return torch.empty(0, dtype=torch.int64, device=values.device)
