"""What public functions of core check at their door: rank, dtype and length, none of which needs a look at a value."""

from typing import Final

import torch
from torch import Tensor

FLOATS: Final = (torch.float32, torch.float64)
DOUBLE: Final = (torch.float64,)
MARKS: Final = (torch.bool,)
INTEGERS: Final = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
NUMBERS: Final = (*FLOATS, *INTEGERS, *MARKS)


def check(name: str, values: Tensor, rank: int | None, dtypes: tuple[torch.dtype, ...] = FLOATS) -> None:
    """ValueError unless the tensor has this rank (None: any but 0), TypeError unless it has one of these dtypes."""
    if values.ndim != rank if rank is not None else not values.ndim:
        raise ValueError(f"{name} must have {rank or 'some'} dimensions, has shape {tuple(values.shape)}")
    if values.dtype not in dtypes:
        raise TypeError(f"{name} must be one of {', '.join(map(str, dtypes))}, is {values.dtype}")


def check_shape(name: str, values: Tensor, *shape: int) -> None:
    """ValueError unless the tensor has this shape; -1 stands for any length."""
    if values.ndim != len(shape) or any(size not in (-1, own) for own, size in zip(values.shape, shape, strict=True)):
        raise ValueError(f"{name} has shape {tuple(values.shape)}, expected {shape}")
