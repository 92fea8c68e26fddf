"""What public functions of core check at their door: shape and dtype, neither of which needs a look at a value."""

from typing import Final

import torch
from torch import Tensor

FLOATS: Final = (torch.float32, torch.float64)
DOUBLE: Final = (torch.float64,)
MARKS: Final = (torch.bool,)
INTEGERS: Final = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
NUMBERS: Final = (*FLOATS, *INTEGERS, *MARKS)


def check(name: str, values: Tensor | None, *shape: int, of: tuple[torch.dtype, ...] = FLOATS) -> None:
    """ValueError unless a tensor has this shape, TypeError unless it has one of these dtypes; None is no tensor.

    -1 stands for any length; without a shape there are any dimensions but none.
    """
    if values is None:
        return
    wanted = shape or (-1,) * max(values.ndim, 1)
    if len(values.shape) != len(wanted) or any(map(lambda own, size: size not in (-1, own), values.shape, wanted)):
        raise ValueError(f"{name} has shape {tuple(values.shape)}, expected {shape or 'some dimensions'}")
    if values.dtype not in of:
        raise TypeError(f"{name} must be one of {', '.join(map(str, of))}, is {values.dtype}")
