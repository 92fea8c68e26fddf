"""Evaluates a batch for /v1/evaluate: its figures, what each row would do with it, and the detail asked for.

One pass over the blocks, in slices: a slice is the figures of a block, or some rows on it. Nothing here is stored.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from offpolicy_monitor.batch import Array, Origin
from offpolicy_monitor.core.decision import dropped_in_sequences
from offpolicy_monitor.measure.blocks import Block, DeviceBatch
from offpolicy_monitor.measure.corrections import Record, Structure, no_drops, row_records, row_sums
from offpolicy_monitor.measure.decide import Decider, applicable
from offpolicy_monitor.measure.detail import Decisions, add_decisions, sequence_columns, sequence_figures
from offpolicy_monitor.measure.summarise import Views, block_sums, brought, summary_of
from offpolicy_monitor.measure.tables import OF_DATA
from offpolicy_monitor.measure.totals import Totals
from offpolicy_monitor.methods import MethodRow
from offpolicy_monitor.slices import Slices
from offpolicy_monitor.summary.answer import rows_told
from offpolicy_monitor.summary.evaluation import Detail, Evaluation
from offpolicy_monitor.summary.method import SUMS
from offpolicy_monitor.summary.records import Records

#: Tokens times rows that one slice decides at most (some 30 ms), unless one row has more.
SLICE_TOKENS: Final = 1 << 20
#: What a row costs besides its tokens, in tokens.
ROW_TOKENS: Final = 1 << 14


def evaluation(
    loaded: DeviceBatch, wanted: Sequence[MethodRow], detail: Detail, origin: Origin, block_tokens: int
) -> Slices[Evaluation]:
    """The answer; rows whose gap or advantages were not sent are left out, and their names may repeat."""
    batch, rows = loaded.source, applicable(wanted, loaded)
    views, asked = Views(loaded, (), origin, OF_DATA), Rows(loaded, rows, detail, block_tokens)
    totals = Totals()
    for view in views.of_blocks(block_tokens):
        totals.add(block_sums(view, OF_DATA, {} if detail == "none" else {"sequences": sequence_figures(view)}))
        yield
        yield from asked.add(view.block)
    counted, arrays = brought(views, totals)
    summary = summary_of(views, counted, arrays, OF_DATA, None)
    return Evaluation(
        summary.figures(),
        asked.figures(arrays),
        np.concatenate([[0], np.cumsum(batch.lengths)]).astype(np.int64),
        None if detail == "none" else [row.detail() for row in asked.decisions],
        None if detail == "none" else sequence_columns(loaded, arrays.get("sequences")),
    )


class Rows:
    """The rows that were asked for, in the parts that one slice decides."""

    def __init__(self, loaded: DeviceBatch, rows: Sequence[MethodRow], detail: Detail, block_tokens: int) -> None:
        self._batch, self._rows, self._decider = loaded, rows, Decider(rows, loaded)
        self.decisions = [] if detail == "none" else [Decisions(loaded.source, row, detail == "token") for row in rows]
        step = max(1, SLICE_TOKENS // (min(block_tokens, loaded.source.tokens) + ROW_TOKENS))
        self._parts = [slice(first, first + step) for first in range(0, len(rows), step)]
        self._totals = [Totals() for _ in self._parts]
        self._structures: list[Structure] = []

    def add(self, block: Block) -> Slices[None]:
        """Decide about a block, with a stop after each part."""
        structures = []
        for part, totals in zip(self._parts, self._totals, strict=True):
            found = self._decider.decide(block, part)
            totals.add(row_sums(block.gaps, found, dropped_in_sequences(block.gaps, found) if found.drops else None))
            if self.decisions:
                add_decisions(block, found, self.decisions)
            structures.append(Structure.of(found))
            yield
        self._structures = structures

    def figures(self, arrays: Mapping[str, Array]) -> list[dict[str, Any]]:
        """Of each row in the order asked; the arrays are those of the gaps."""
        records: dict[int, Record] = {}
        for totals, structure in zip(self._totals if arrays else (), self._structures, strict=True):
            records |= row_records({**arrays, **totals.arrays()}, structure, self._rows, self._batch)
        sums = [records.get(index, no_drops(row)) for index, row in enumerate(self._rows)]
        return rows_told([row.definition for row in self._rows], Records.of(sums, SUMS))
