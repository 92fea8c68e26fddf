"""What public functions of core check at their door: rank and dtype, neither of which needs a look at a value."""

from typing import Final

import torch
from torch import Tensor

FLOATS: Final = (torch.float32, torch.float64)


def check(name: str, values: Tensor, rank: int, dtypes: tuple[torch.dtype, ...] = FLOATS) -> None:
    """ValueError unless the tensor has this rank, TypeError unless it has one of these dtypes."""
    if values.ndim != rank:
        raise ValueError(f"{name} must have {rank} dimensions, has shape {tuple(values.shape)}")
    if values.dtype not in dtypes:
        raise TypeError(f"{name} must be one of {', '.join(map(str, dtypes))}, is {values.dtype}")
