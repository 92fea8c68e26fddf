"""Counts that are not zero are found many at a time."""

from typing import Any

import numpy as np
import pytest
from numba import njit
from numpy.typing import NDArray
from offpolicy_monitor.fused.bits import STRIDE, filled, lowest


@njit
def _found(counts: NDArray[np.int32], begin: int, end: int) -> list[int]:
    numbers = []
    for start in range(begin, end, STRIDE):
        left = filled(counts, start, end)
        while left:
            numbers.append(start + lowest(left))
            left &= left - 1
    return numbers


found: Any = _found  # which takes what numpy calls arrays, though numba's types do not say so


@pytest.mark.parametrize("share", [0, 0.01, 0.4, 1])
@pytest.mark.parametrize(("begin", "end"), [(0, 0), (0, 1), (3, 66), (3, 67), (1, 64), (0, 64), (7, 300), (0, 320)])
def test_every_count_that_is_not_zero_is_found_in_order(begin: int, end: int, share: float) -> None:
    random = np.random.default_rng([begin, end])
    counts = np.where(random.random(320 + STRIDE) < share, random.integers(-3, 3, 320 + STRIDE), 0).astype(np.int32)
    expected = begin + np.flatnonzero(counts[begin:end])
    assert found(counts, begin, end) == expected.tolist()
