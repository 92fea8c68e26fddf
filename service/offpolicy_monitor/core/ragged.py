"""Sums and extremes over the sequences of packed tokens, and sums over all of them.

Shapes: T packed tokens, N non-empty sequences; values come as [..., T] on any device. On the CPU numpy's reduceat does
the work on the same memory, with float64 accumulators and no float64 copy; elsewhere torch.segment_reduce does it for
all rows at once, first of short runs of tokens and then of these, since it gives each result one thread. Neither looks
at a value, nor at a length on the device.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from offpolicy_monitor.core import device
from offpolicy_monitor.core.checks import DOUBLE, NUMBERS, check

Kind = Literal["sum", "min", "max"]
_UFUNCS: Final = {"sum": np.add, "min": np.minimum, "max": np.maximum}
#: Tokens that one thread of a GPU adds up.
RUN_TOKENS: Final = 32


@dataclass(frozen=True, eq=False)
class Segments:
    """The N non-empty sequences of T packed tokens.

    lengths  [N] int64 on the host, each at least 1, with sum T
    device   where the token values live

    Raises ValueError for lengths of another rank or below 1, TypeError for another dtype; so do its methods for values.
    """

    lengths: NDArray[np.int64]
    device: torch.device

    def __post_init__(self) -> None:
        if self.lengths.ndim != 1:
            raise ValueError(f"lengths have shape {self.lengths.shape}, expected [N]")
        if self.lengths.dtype != np.int64:
            raise TypeError(f"lengths must be int64, are {self.lengths.dtype}")
        if len(self.lengths) and int(self.lengths.min()) < 1:
            raise ValueError("segments must not be empty")

    @cached_property
    def tokens(self) -> int:
        """T."""
        return int(self.lengths.sum())

    def equal(self, others: "Segments") -> bool:
        """Whether these are the same sequences: of equal lengths."""
        return self is others or np.array_equal(self.lengths, others.lengths)

    @property
    def sequences(self) -> int:
        """N."""
        return len(self.lengths)

    @cached_property
    def counts(self) -> Tensor:
        """[N] float64 on the device: tokens of each sequence."""
        return self._brought(self.lengths.astype(np.float64))

    @cached_property
    def owners(self) -> Tensor:
        """[T] int64 on the device: the sequence that each token belongs to."""
        return torch.repeat_interleave(self._brought(self.lengths), output_size=self.tokens)

    @cached_property
    def starts(self) -> Tensor:
        """[N] int64 on the device: the first token of each sequence."""
        return self._brought(self._starts)

    @cached_property
    def indices(self) -> Tensor:
        """[T] int64 on the device: the index of each token in its sequence, from 0."""
        return torch.arange(self.tokens, device=self.device) - self.spread(self.starts)

    @cached_property
    def _starts(self) -> NDArray[np.int64]:
        starts = np.zeros(len(self.lengths), np.int64)
        np.cumsum(self.lengths[:-1], out=starts[1:])
        return starts

    @cached_property
    def _runs(self) -> tuple[Tensor, Tensor]:
        """The lengths of the runs of at most RUN_TOKENS tokens that sequences are cut into, [R], and how many runs
        each sequence has, [N]; int64 on the device."""
        number = -(-self.lengths // RUN_TOKENS)
        lengths = np.full(int(number.sum()), RUN_TOKENS)
        lengths[np.cumsum(number) - 1] = self.lengths - (number - 1) * RUN_TOKENS
        both = self._brought(np.concatenate([lengths, number]))
        return both[: len(lengths)], both[len(lengths) :]

    def sum(self, values: Tensor) -> Tensor:
        """Sum of each sequence: [..., T] of any dtype in checks.NUMBERS -> [..., N] float64, accumulated in float64."""
        return self._reduced(values, "sum")

    def min(self, values: Tensor) -> Tensor:
        """Smallest value of each sequence: [..., T] -> [..., N] float64."""
        return self._reduced(values, "min")

    def max(self, values: Tensor) -> Tensor:
        """Largest value of each sequence: [..., T] -> [..., N] float64."""
        return self._reduced(values, "max")

    def spread(self, values: Tensor) -> Tensor:
        """Stand each sequence's value at each of its tokens: [..., N] -> [..., T], same dtype."""
        check("values", values, *values.shape[:-1], self.sequences, of=NUMBERS)
        return values.index_select(-1, self.owners)

    def _reduced(self, values: Tensor, kind: Kind) -> Tensor:
        check("values", values, *values.shape[:-1], self.tokens, of=NUMBERS)
        if device.is_host(self.device):
            marks = values.dtype == torch.bool  # counted in integers, which is three times as fast
            dtype = (np.int32 if marks else np.float64) if kind == "sum" else None
            array = values.numpy().view(np.uint8) if marks else values.numpy()
            return torch.from_numpy(_UFUNCS[kind].reduceat(array, self._starts, axis=-1, dtype=dtype)).double()
        rows = values.double().reshape(-1, self.tokens)
        for lengths in self._runs:
            rows = torch.segment_reduce(rows, kind, lengths=lengths.expand(len(rows), -1), axis=1, unsafe=True)
        return rows.view(*values.shape[:-1], self.sequences)

    def _brought(self, values: NDArray[Any]) -> Tensor:
        return torch.from_numpy(values).to(self.device, non_blocking=True)


def total(values: Tensor) -> Tensor:
    """Sum over the last dimension, accumulated in float64: [..., n] of any number's dtype -> [...] float64.

    Raises ValueError for a single number, TypeError for another dtype.
    """
    check("values", values, of=NUMBERS)
    return values.sum(-1, dtype=torch.float64)


def products(rows: Tensor) -> Tensor:
    """Sums of the products of any two rows, or of one with itself: [R, n] float64 -> [R, R] float64.

    Raises ValueError for another rank, TypeError for another dtype.
    """
    check("rows", rows, -1, -1, of=DOUBLE)
    return rows @ rows.mT
