"""Sums and extremes over the sequences of packed tokens.

Shapes: T packed tokens, N non-empty sequences. Segments holds where sequences begin; values come as [T] tensors on any
device. On the CPU numpy's reduceat does the work on the same memory, with float64 accumulators and no float64 copy;
elsewhere torch.segment_reduce does.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Segments:
    """The N non-empty sequences of T packed tokens.

    lengths  [N] int64 on the CPU, each at least 1, with sum T
    device   where the token values live
    """

    lengths: Tensor
    device: torch.device

    def __post_init__(self) -> None:
        if self.lengths.dtype != torch.int64 or self.lengths.ndim != 1:
            raise ValueError(f"lengths must be [N] int64, got {self.lengths.dtype} of rank {self.lengths.ndim}")
        if len(self.lengths) and int(self.lengths.min()) < 1:
            raise ValueError("segments must not be empty")

    @cached_property
    def tokens(self) -> int:
        """T."""
        return int(self.lengths.sum())

    @property
    def sequences(self) -> int:
        """N."""
        return len(self.lengths)

    @cached_property
    def counts(self) -> Tensor:
        """[N] float64 on the device: tokens of each sequence."""
        return self.lengths.to(self.device, torch.float64)

    @cached_property
    def _starts(self) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
        starts = np.zeros(len(self.lengths), np.int64)
        np.cumsum(self.lengths.numpy()[:-1], out=starts[1:])
        return starts

    @cached_property
    def _device_lengths(self) -> Tensor:
        return self.lengths.to(self.device)

    def sum(self, values: Tensor) -> Tensor:
        """Sum of each sequence: [T] of any float dtype -> [N] float64, accumulated in float64."""
        if values.device.type == "cpu":
            return torch.from_numpy(np.add.reduceat(values.numpy(), self._starts, dtype=np.float64))
        return torch.segment_reduce(values.double(), "sum", lengths=self._device_lengths)

    def min(self, values: Tensor) -> Tensor:
        """Smallest value of each sequence: [T] -> [N] float64."""
        if values.device.type == "cpu":
            return torch.from_numpy(np.minimum.reduceat(values.numpy(), self._starts)).double()
        return torch.segment_reduce(values, "min", lengths=self._device_lengths).double()

    def max(self, values: Tensor) -> Tensor:
        """Largest value of each sequence: [T] -> [N] float64."""
        if values.device.type == "cpu":
            return torch.from_numpy(np.maximum.reduceat(values.numpy(), self._starts)).double()
        return torch.segment_reduce(values, "max", lengths=self._device_lengths).double()

    def spread(self, values: Tensor) -> Tensor:
        """Stand each sequence's value at each of its tokens: [N] -> [T], same dtype."""
        if values.device.type == "cpu":
            return torch.from_numpy(np.repeat(values.numpy(), self.lengths.numpy()))
        return torch.repeat_interleave(values, self._device_lengths, output_size=self.tokens)

    @cached_property
    def _ends(self) -> Tensor:
        return torch.cumsum(self.lengths, 0).to(self.device)

    def owners(self, places: Tensor) -> Tensor:
        """The sequence that each token belongs to: places [n] int64 -> [n] int64."""
        return torch.bucketize(places, self._ends, right=True)

    def selected(self, chosen: Tensor) -> Tensor:
        """How many chosen tokens each sequence has: [T] bool on the device -> [N] int64 on the CPU."""
        return self.sum(chosen.to(torch.float32)).to("cpu", torch.int64)


def total(values: Tensor) -> Tensor:
    """Sum of all values, accumulated in float64: [...] of any dtype -> 0-dim float64."""
    return values.sum(dtype=torch.float64)
