"""RaggedBatch -> StepSummary: arrays that blocks of a batch add up to, and from them the tables of a summary.

The device is asked once, after the last block.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from typing import Any
from urllib.parse import quote

import numpy as np
from torch import Tensor

from offpolicy_monitor.batch import Array, Origin
from offpolicy_monitor.measure.blocks import Block, DeviceBatch
from offpolicy_monitor.measure.corrections import Structure, row_records, row_sums, row_tables
from offpolicy_monitor.measure.counts import batch_tables
from offpolicy_monitor.measure.decide import Decider, applicable
from offpolicy_monitor.measure.differences import Asked, Differences
from offpolicy_monitor.measure.gaps import gap_sums, gap_tables
from offpolicy_monitor.measure.routing import compared
from offpolicy_monitor.measure.tables import Maker, Named
from offpolicy_monitor.measure.totals import Sums, Totals
from offpolicy_monitor.measure.view import FIGURES_OF_SEQUENCES, BlockView
from offpolicy_monitor.measure.worst import worst
from offpolicy_monitor.methods import MethodRow
from offpolicy_monitor.summary.arrays import Arrays
from offpolicy_monitor.summary.batch import CROSS
from offpolicy_monitor.summary.gap import GAP, HISTOGRAMS
from offpolicy_monitor.summary.layout import LAYOUT
from offpolicy_monitor.summary.merge import merged
from offpolicy_monitor.summary.method import METHOD, SIDES
from offpolicy_monitor.summary.rows import Table
from offpolicy_monitor.summary.step import StepSummary
from offpolicy_monitor.summary.tables.worst import Worst

Tables = Mapping[str, Mapping[str, Any]]
#: What a row that has an extreme holds before any token.
_NOTHING = {"min": np.inf, "max": -np.inf}


def summarise(
    loaded: DeviceBatch,
    rows: Sequence[MethodRow],
    block_tokens: int,
    origin: Origin,
    makers: Sequence[Maker],
    keep_worst: int | None = None,
) -> StepSummary:
    """The summary of a batch.

    `keep_worst` sequences of each ranking of the worst keep raw log-probs; None looks for no worst sequences.
    """
    views, totals = Views(loaded, applicable(rows, loaded), origin, makers), Totals()
    for view in views.of_blocks(block_tokens):
        each = {} if keep_worst is None else view.figures_of_sequences()
        totals.add(block_sums(view, makers, each))
    return summary_of(views, *brought(views, totals), makers, keep_worst)


class Views:
    """The views of a batch's blocks, for makers of tables, and the last of them, by which arrays are named."""

    def __init__(self, loaded: DeviceBatch, rows: Sequence[MethodRow], origin: Origin, makers: Sequence[Maker]) -> None:
        self.batch, self.decider, self.origin = loaded, Decider(rows, loaded), origin
        binned = [maker.binned for maker in makers if maker.binned]
        self._binned = [score for scores_of in binned for score in scores_of(loaded.gaps, rows)]
        asked = [maker.asked for maker in makers if maker.asked]
        self._differences = Differences(Asked.all_of(of(loaded.source.columns) for of in asked), loaded)
        self._routed = cache(partial(compared, loaded.source))
        self.last = self._view(Block(loaded, 0, 0))

    def of_blocks(self, block_tokens: int) -> Iterator[BlockView]:
        """One view per block, in order; none where no gap was sent."""
        for block in self.batch.blocks(block_tokens) if self.batch.gaps else ():
            self.last = self._view(block)
            yield self.last

    def _view(self, block: Block) -> BlockView:
        return BlockView(block, self.decider, self.origin, self._differences, self._routed, self._binned)


def block_sums(view: BlockView, makers: Sequence[Maker], each: Mapping[str, Tensor]) -> Sums:
    """Everything that a block adds to its batch: gaps, rows, tables, and what is kept `each` sequence."""
    apart = view.differences.sums_of(view.block)  # first: what they take is free again before the gaps take more
    gaps, rows = gap_sums(view), row_sums(view.gaps, view.decided, view.dropped)
    made = _sums(view, makers)
    sums, terms = {**apart, **gaps.sum, **rows.sum, **made.sum}, {**gaps.terms, **rows.terms, **made.terms}
    return Sums(sums, terms, gaps.min, {**gaps.max, **rows.max}, each)


def _sums(view: BlockView, makers: Sequence[Maker]) -> Sums:
    sums = {name: array for maker in makers if maker.sums for name, array in maker.sums(view).items()}
    terms = {name: array for maker in makers if maker.terms for name, array in maker.terms(view).items()}
    return Sums(sums, terms)


def brought(views: Views, totals: Totals) -> tuple[Tables, dict[str, Array]]:
    """What the host counts of a batch, and then what its device came to, which a GPU adds up meanwhile."""
    return dict(batch_tables(views.batch.source, views.origin.policy_version)), totals.arrays()


def summary_of(
    views: Views, counted: Tables, arrays: Mapping[str, Array], makers: Sequence[Maker], keep_worst: int | None
) -> StepSummary:
    """The summary that a batch's arrays are, with what was counted of it."""
    tables = {**counted, **dict(_tables(views, arrays, makers))}
    specs = {row.name: row.spec for row in views.decider.rows}
    found = Worst() if keep_worst is None or not arrays else worst(
        views.batch.source, views.batch.gaps, np.array([arrays[name] for name in FIGURES_OF_SEQUENCES]),
        views.origin.shard, keep_worst,
    )  # fmt: skip
    return StepSummary(Arrays.of(LAYOUT, tables), specs, found)


def _tables(views: Views, arrays: Mapping[str, Array], makers: Sequence[Maker]) -> Named:
    view, batch, rows = views.last, views.batch, views.decider.rows
    if arrays:
        yield from gap_tables(arrays, batch)
        yield from row_tables(row_records(arrays, Structure.of(view.decided), rows, batch), rows)
    else:
        yield from _nothing(batch, rows)
    yield from _made(view, arrays, makers)


def _made(view: BlockView, arrays: Mapping[str, Array], makers: Sequence[Maker]) -> Named:
    for maker in makers:
        if (arrays or maker.gapless) and maker.makes_any(view.block.batch.source):
            yield from maker.tables(arrays, view)


def with_tables(
    found: Arrays,
    loaded: DeviceBatch,
    rows: Sequence[MethodRow],
    block_tokens: int,
    origin: Origin,
    makers: Sequence[Maker],
) -> Arrays:
    """What is found of a batch already, and the tables of some makers; gaps and rows are not summed again."""
    views, totals = Views(loaded, applicable(rows, loaded), origin, makers), Totals()
    if any(maker.sums or maker.terms or maker.asked for maker in makers):
        for view in views.of_blocks(block_tokens):
            made = _sums(view, makers)
            totals.add(made._replace(sum={**view.differences.sums_of(view.block), **made.sum}))
    arrays = {**_known(found, loaded), **totals.arrays()} if loaded.gaps and len(loaded.sequences) else {}
    return merged((found, Arrays.of(LAYOUT, dict(_made(views.last, arrays, makers)))))


def _known(found: Arrays, loaded: DeviceBatch) -> dict[str, Array]:
    """The sums of gaps [G] and their cross terms, by the names that makers know them by."""
    gaps = [found.record(f"gaps/{gap}") for gap in loaded.gaps]
    cross = found.record("cross")
    return {
        **{f"gaps/{row.name}": np.array([sums[row.name] for sums in gaps]) for row in GAP.rows},
        **{f"cross/{row.name}": np.array(cross.get(row.name, 0)) for row in CROSS.rows},
    }


def _nothing(batch: DeviceBatch, rows: Sequence[MethodRow]) -> Named:
    """Every gap and row of a batch without a token."""
    for gap in batch.gaps:
        for table in (GAP, HISTOGRAMS):
            yield table.path.format(gap=gap), _zeros(table)
    for row in rows:
        for table in (METHOD, SIDES) if row.two_sided else (METHOD,):
            yield table.key.format(row=quote(row.name, safe="")), _zeros(table)


def _zeros(table: Table) -> dict[str, Any]:
    return {row.name: np.full([int(size) for size in row.shape], _NOTHING.get(row.merge, 0)) for row in table.rows}
