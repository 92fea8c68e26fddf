"""The mismatch's signature: what diagnosis needs beyond the figures and breakdowns that exist anyway.

Tables: `signature/middle` (a regression over tokens of middling probability, and how many of them agree exactly),
`signature/neighbours` (products of neighbours) and `signature/grid/<column>` (values on a grid).
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

import torch
from torch import Tensor

from offpolicy_monitor.batch import Array
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

#: Dtypes on the wire whose own rounding would look like a grid.
COARSE_DTYPES: Final = frozenset({"bfloat16", "float16"})


def sums_of(view: BlockView) -> dict[str, Tensor]:
    """[sums] of the regression and of neighbours, [columns, sums] of grids; none without the mismatch."""
    gaps = view.gaps
    if "mismatch" not in view.block.batch.gaps:
        return {}
    gap = view.block.batch.gaps.index("mismatch")
    a, b, d = gaps.numerator[gap], gaps.denominator[gap], gaps.columns.log_ratio[gap]
    valid = None if gaps.valid is None else gaps.valid[gap]
    found = {
        "signature/middle": regression_sums(d, b, valid, math.log(LOWEST_MIDDLE), math.log(HIGHEST_MIDDLE)),
        "signature/neighbours": neighbour_sums(a, b, valid, gaps.segments.owners),
    }
    if not COARSE_DTYPES & set(view.block.batch.source.dtypes.values()):
        least = torch.tensor(list(LEAST.values()), dtype=d.dtype, device=d.device)
        found["signature/grid"] = grid_counts(torch.stack([b, a, d]), least)
    return found


def tables_of(arrays: Mapping[str, Array], view: BlockView) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The signature tables; none where the mismatch has no token, or no pair."""
    gaps = view.block.batch.gaps
    if "mismatch" not in gaps or not arrays["gaps/tokens"][gaps.index("mismatch")]:
        return
    *middle, exact = arrays["signature/middle"].tolist()
    if middle[0]:
        yield f"{PREFIX}/middle", dict(zip(MIDDLE_KEYS, middle, strict=True))
        if exact:
            yield f"{PREFIX}/middle#exact", {"exact": exact}
    if arrays["signature/neighbours"][0]:
        yield f"{PREFIX}/neighbours", dict(zip(NEIGHBOUR_KEYS, arrays["signature/neighbours"].tolist(), strict=True))
    for name, counts in zip(LEAST, arrays.get("signature/grid", ()), strict=False):
        if counts[0]:
            yield f"{PREFIX}/grid/{name}", dict(zip(GRID_KEYS, counts.tolist(), strict=True))
