"""Layouts: rows and lengths out of the padded and packed arrays of a framework, without copies.

S sequences, T packed tokens, L positions of a padded row. Arrays are numpy's or torch's, told apart by duck typing; a
tensor leaves its graph behind, since a graph that waits in a queue holds the activations of the whole step.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def detached(array: Any) -> Any:
    """The same values without the graph that made them; anything but a tensor comes back as it is."""
    return array.detach() if hasattr(array, "detach") else array


def rows(padded: Any) -> list[Any]:
    """[S, L] -> S views [L], detached. A list or tuple of rows stays one."""
    return [detached(row) for row in padded]


def all_rows(arrays: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Padded arrays by name as rows, without those that are None."""
    return {name: rows(array) for name, array in arrays.items() if array is not None}


def lengths(cu_seqlens: Any) -> NDArray[np.int64]:
    """[S + 1] cumulative lengths 0, n1, n1 + n2, ... -> [S] int64 lengths n1, n2, ..."""
    ends = np.asarray(cu_seqlens.cpu() if hasattr(cu_seqlens, "cpu") else cu_seqlens, np.int64)
    return ends[1:] - ends[:-1]


def split(packed: Any, sizes: Sequence[int]) -> list[Any]:
    """[T] and S lengths -> S views of those lengths, detached. Raises ValueError where they do not add up to T."""
    if sum(sizes) != len(packed):
        raise ValueError(f"lengths add up to {sum(sizes)}, the packed array has {len(packed)} entries")
    ends = np.cumsum(sizes)
    return [detached(packed[end - size : end]) for size, end in zip(sizes, ends, strict=True)]
