"""Maker of the mismatch's signature: what diagnosis needs beyond the figures and breakdowns that exist anyway.

Tables: `signature/middle` (a regression over tokens of middling probability, and how many of them agree exactly),
`signature/neighbours` (products of neighbours) and `signature/grid/<column>` (values on a grid).
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from offpolicy_monitor.core.signature import grid_counts, neighbour_sums, regression_sums
from offpolicy_monitor.measure.blocks import ValidTokens
from offpolicy_monitor.summary.named import Table, Tables
from offpolicy_monitor.summary.tables.signature import (
    GRID_KEYS,
    HIGHEST_MIDDLE,
    LEAST,
    LOWEST_MIDDLE,
    MIDDLE_KEYS,
    NEIGHBOUR_KEYS,
    PREFIX,
)

if TYPE_CHECKING:
    from offpolicy_monitor.measure.tables import BlockView

#: Dtypes on the wire whose own rounding would look like a grid.
COARSE_DTYPES = frozenset({"bfloat16", "float16"})


def signature(view: "BlockView") -> Tables:
    """The signature tables of a block; none where the mismatch has no token."""
    valid = view.valid.get("mismatch")
    if valid is None:
        return {}
    b, d = valid.gap.denominator, valid.gap.log_ratio
    sums, exact = regression_sums(d, b, math.log(LOWEST_MIDDLE), math.log(HIGHEST_MIDDLE))
    middle = _named(MIDDLE_KEYS, sums)
    tables: dict[str, Table] = {
        f"{PREFIX}/middle": {**middle, "exact": exact} if exact else middle,
        f"{PREFIX}/neighbours": _neighbours(valid),
    }
    if not COARSE_DTYPES & set(view.block.batch.source.dtypes.values()):
        for name, column in (("sampling", b), ("old", valid.gap.numerator), ("difference", d)):
            counts = dict(zip(GRID_KEYS, grid_counts(column, LEAST[name]), strict=True))
            tables[f"{PREFIX}/grid/{name}"] = {key: count for key, count in counts.items() if count}
    return {name: table for name, table in tables.items() if table}


def _neighbours(valid: ValidTokens) -> Table:
    gap = valid.gap
    if gap.segments.tokens == gap.segments.sequences:
        return {}
    return _named(NEIGHBOUR_KEYS, neighbour_sums(gap.numerator, gap.denominator, gap.segments))


def _named(keys: Sequence[str], sums: Tensor) -> Table:
    """[K] float64 whose first is a count -> a table; empty where the count is 0."""
    count, *rest = sums.cpu().tolist()
    return {keys[0]: int(count), **dict(zip(keys[1:], rest, strict=True))} if count else {}
