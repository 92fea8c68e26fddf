"""What follows from the device that tensors are on: how numbers get there, and whether numpy can take what is there."""

from typing import Any

import torch
from torch import Tensor


def constant(values: Any, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Nested lists of numbers as a tensor. `torch.tensor(..., device=)` would wait for all that a GPU has to do."""
    return torch.tensor(values, dtype=dtype).to(device, non_blocking=True)


def is_host(device: torch.device) -> bool:
    """Whether its tensors lie where numpy can take them, which then has a quicker way than operations of any device.

    Both ways give the same figures, counts exactly and sums to float64 rounding.
    """
    return device.type == "cpu"
