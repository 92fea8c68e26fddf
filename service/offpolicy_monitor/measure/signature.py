"""The mismatch's signature: what diagnosis needs beyond the figures and breakdowns that exist anyway.

Tables: `signature/middle` (a regression over tokens of middling probability, and how many of them agree exactly),
`signature/neighbours` (products of neighbours) and `signature/grid/<column>` (values on a grid).
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import torch
from torch import Tensor

from offpolicy_monitor.batch import Array
from offpolicy_monitor.core.device import constant
from offpolicy_monitor.core.signature import grid_counts, neighbour_sums, regression_sums
from offpolicy_monitor.measure.view import BlockView
from offpolicy_monitor.summary.tables.signature import (
    GRID_KEYS,
    HIGHEST_MIDDLE,
    LEAST,
    LOWEST_MIDDLE,
    MIDDLE_KEYS,
    NEIGHBOUR_KEYS,
    PREFIX,
)

#: Which products MIDDLE_KEYS are, of 1, b, d and (d = 0); and NEIGHBOUR_KEYS, of 1, a_t, b_t, a_u and b_u.
_MIDDLE: Final = ((0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2))
_NEIGHBOURS: Final = ((0, 0), (0, 1), (0, 2), (1, 1), (2, 2), (0, 3), (0, 4), (3, 3), (4, 4), (1, 4), (2, 3))


def sums_of(view: BlockView) -> dict[str, Tensor]:
    """Products of the regression [4, 4] and of neighbours [5, 5], [sums, columns] of grids; none without mismatch."""
    gaps = view.gaps
    if "mismatch" not in view.block.batch.gaps:
        return {}
    gap = view.block.batch.gaps.index("mismatch")
    sides, d = gaps.sides[:, gap], gaps.columns.log_ratio[gap]
    a, b = sides
    found = {
        "signature/middle": regression_sums(d, b, math.log(LOWEST_MIDDLE), math.log(HIGHEST_MIDDLE)),
        "signature/neighbours": neighbour_sums(sides, gaps.segments.owners, view.block.valid_tokens(gap)),
    }
    if view.block.batch.source.is_fine:
        least = constant(list(LEAST.values()), d.dtype, d.device)
        found["signature/grid"] = grid_counts(torch.stack([b, a, d]), least)
    return found


def tables_of(arrays: Mapping[str, Array], view: BlockView) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The signature tables; none where the mismatch has no token, or no pair."""
    gaps = view.block.batch.gaps
    if "mismatch" not in gaps or not arrays["gaps/tokens"][gaps.index("mismatch")]:
        return
    middle, neighbours = arrays["signature/middle"], arrays["signature/neighbours"]
    if middle[0, 0]:
        yield f"{PREFIX}/middle", _named(MIDDLE_KEYS, middle, _MIDDLE)
        if middle[0, 3]:
            yield f"{PREFIX}/middle#exact", {"exact": middle[0, 3]}
    if neighbours[0, 0]:
        yield f"{PREFIX}/neighbours", _named(NEIGHBOUR_KEYS, neighbours, _NEIGHBOURS)
    for name, counts in zip(LEAST, arrays["signature/grid"].T if "signature/grid" in arrays else (), strict=False):
        if counts[0]:
            yield f"{PREFIX}/grid/{name}", dict(zip(GRID_KEYS, counts.tolist(), strict=True))


def _named(keys: Sequence[str], products: Array, indices: Sequence[tuple[int, int]]) -> dict[str, float]:
    return {key: float(products[index]) for key, index in zip(keys, indices, strict=True)}
