"""Numbers that a computation brings along, on the device of its tensors without a wait for that device."""

from typing import Any

import torch
from torch import Tensor


def constant(values: Any, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Nested lists of numbers as a tensor. `torch.tensor(..., device=)` would wait for all that a GPU has to do."""
    return torch.tensor(values, dtype=dtype).to(device, non_blocking=True)
