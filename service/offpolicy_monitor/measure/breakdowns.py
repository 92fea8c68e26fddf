"""Maker of breakdowns: tokens, sum d, |d|, d^2, k3 by bucket of each dimension and gap, and the cross terms of gaps.

Dimensions of tokens share one joint cell number a token while their product stays small; dimensions of sequences add
up the sums of sequences that exist anyway. Tables: `breakdown/<dimension>/<bucket>/<gap>` and `.../cross`.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from torch import Tensor

from offpolicy_monitor.core.cells import Cells, marginal
from offpolicy_monitor.core.gap import GapTokens
from offpolicy_monitor.measure.blocks import ValidTokens
from offpolicy_monitor.measure.dimensions import Dimension, dimensions
from offpolicy_monitor.summary.named import Table, Tables
from offpolicy_monitor.summary.tables.breakdown import CROSS_KEYS, GAP_KEYS

if TYPE_CHECKING:
    from offpolicy_monitor.measure.tables import BlockView

#: Joint cells beyond this many cost more than another pass; the next dimension then starts a number of its own.
MOST_CELLS: Final = 1 << 16


def breakdowns(view: "BlockView") -> Tables:
    """The breakdown tables of a block."""
    found = list(dimensions(view.block, view.origin))
    groups = [(group, _cells(group)) for group in _groups([d for d in found if d.a_token])]
    of_sequences = [dimension for dimension in found if not dimension.a_token]
    tables: dict[str, Table] = {}
    for name, keys, valid, gap_columns, sequence_columns in _parts(view):
        for group, cells in groups:
            tables |= _of_tokens(name, keys, group, cells.selected(valid.tokens), gap_columns)
        for dimension in of_sequences:
            tables |= _of_sequences(name, keys, valid, dimension, sequence_columns)
    return tables


Part = tuple[str, Sequence[str], ValidTokens, Sequence[Tensor], Sequence[Tensor]]


def _parts(view: "BlockView") -> Iterator[Part]:
    """What is summed: each gap over its valid tokens, and cross terms over the tokens valid for all three."""
    for name, valid in view.valid.items():
        gap, columns = valid.gap, valid.gap.columns
        a_token = (columns.log_ratio, columns.log_ratio_abs, columns.log_ratio_square, columns.k3)
        a_sequence = (gap.sequence_sum, gap.sequence_abs_sum, gap.sequence_square_sum, gap.sequence_k3_sum)
        yield name, GAP_KEYS, valid, a_token, a_sequence
    if len(view.valid) < 3:
        return
    joint, other = view.block.jointly_valid("mismatch"), view.block.jointly_valid("staleness")
    if joint is not None and other is not None:
        yield "cross", CROSS_KEYS, joint, *_cross(joint.gap, other.gap)


def _cross(mismatch: GapTokens, staleness: GapTokens) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
    product = mismatch.log_ratio * staleness.log_ratio
    squares = mismatch.columns.log_ratio_square, staleness.columns.log_ratio_square
    sums = mismatch.sequence_square_sum, staleness.sequence_square_sum
    return (*squares, product), (*sums, mismatch.segments.sum(product))


def _groups(found: Sequence[Dimension]) -> Iterator[list[Dimension]]:
    """Those that change from token to token alone; the others, which stand in runs, as many together as is cheap."""
    yield from ([dimension] for dimension in found if dimension.scattered)
    group: list[Dimension] = []
    cells = 1
    for dimension in found:
        if dimension.scattered:
            continue
        if group and cells * dimension.size > MOST_CELLS:
            yield group
            group, cells = [], 1
        group.append(dimension)
        cells *= dimension.size
    if group:
        yield group


def _of_tokens(
    name: str, keys: Sequence[str], group: Sequence[Dimension], cells: Cells, columns: Sequence[Tensor]
) -> Tables:
    sums, sizes = cells.sums(columns), [dimension.size for dimension in group]
    tables: dict[str, Table] = {}
    for place, dimension in enumerate(group):
        tables |= _tables(name, keys, dimension, marginal(sums, sizes, place))
    return tables


def _cells(group: Sequence[Dimension]) -> Cells:
    return Cells.joint([dimension.places for dimension in group], [dimension.size for dimension in group])


def _of_sequences(
    name: str, keys: Sequence[str], valid: ValidTokens, dimension: Dimension, columns: Sequence[Tensor]
) -> Tables:
    places = dimension.places[valid.sequences.to(dimension.places.device)]
    sums = Cells(places, dimension.size).sums([valid.gap.segments.counts, *columns])[1:]
    return _tables(name, keys, dimension, sums)


def _tables(name: str, keys: Sequence[str], dimension: Dimension, sums: Tensor) -> Tables:
    """[K, places] float64 -> a table a bucket that has tokens."""
    rows = sums.T.cpu().tolist()
    return {
        f"breakdown/{dimension.name}/{bucket}/{name}": {"tokens": int(row[0]), **dict(zip(keys, row[1:], strict=True))}
        for bucket, row in zip(dimension.buckets, rows, strict=False)
        if row[0]
    }
