"""What follows from the device that tensors are on: how numbers get there, and whether numpy can take what is there."""

from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any, Final

import torch
from torch import Tensor

from offpolicy_monitor.core.checks import MARKS, NUMBERS, check

#: Constants that are kept: a batch needs some thirty, which depend on its dtype, its device and the method rows.
KEPT: Final = 1 << 12


def constant(values: Any, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Nested lists of numbers as a tensor, which is brought to the device once and which nobody may change.

    `torch.tensor(..., device=)` would wait for all that a GPU has to do.
    """
    return _constant(_frozen(values), dtype, device)


@lru_cache(KEPT)
def _constant(values: Any, dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.tensor(values, dtype=dtype).to(device, non_blocking=True)


def _frozen(values: Any) -> Any:
    return tuple(map(_frozen, values)) if isinstance(values, Sequence) else values


def where(marks: Tensor, values: Tensor, other: float, out: Tensor | None = None) -> Tensor:
    """The values that are marked, and a number for the others: [..., n] bool, [..., n] -> [..., n] of their dtype.

    The number is brought to the device once; `torch.where` makes it anew, by an operation, each time. out: where they
    go, for instance the values themselves; None for memory of their own. Raises ValueError for a single value,
    TypeError for another dtype, RuntimeError for shapes that do not go together.
    """
    check("marks", marks, of=MARKS)
    check("values", values, of=NUMBERS)
    return torch.where(marks, values, _number(other, values.dtype, values.device), out=out)


@cache
def _number(value: float, dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.full((), value, dtype=dtype, device=device)


def is_host(device: torch.device) -> bool:
    """Whether its tensors lie where numpy can take them, which then has a quicker way than operations of any device.

    Both ways give the same figures, counts exactly and sums to float64 rounding.
    """
    return device.type == "cpu"
