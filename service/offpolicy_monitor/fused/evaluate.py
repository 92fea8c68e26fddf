"""Evaluates a batch by the pass: its figures, what each row would do with it, and the detail asked for, in slices.

A slice is a chunk of tokens with some of the rows. Nothing here is stored. How rows are measured, which takes longer to
say than 100,000 tokens to measure, is remembered of the few that came last, apart from what is of the rows of runs.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np

from offpolicy_monitor.fused.batch import Batch
from offpolicy_monitor.fused.detail import row_details, sequence_columns
from offpolicy_monitor.fused.parts import Asked, Known, Part, Rows
from offpolicy_monitor.fused.summarise import Reading, in_slices, reading
from offpolicy_monitor.methods import MethodRow
from offpolicy_monitor.methods.rule import looks_ahead
from offpolicy_monitor.slices import Slices
from offpolicy_monitor.summary.answer import rows_told
from offpolicy_monitor.summary.arrays import Arrays
from offpolicy_monitor.summary.evaluation import Detail, Evaluation, RowDetail
from offpolicy_monitor.summary.method import paths_of
from offpolicy_monitor.summary.records import Records
from offpolicy_monitor.summary.step import StepSummary

#: Rows of a slice at most: with a chunk of tokens some 30 ms.
MOST_ROWS: Final = 256
#: Rows times sequences of a slice at most, for each of which some bytes are kept.
MOST_ROW_SEQUENCES: Final = 1 << 22
#: Rows that look ahead times tokens of a slice at most: each goes over all tokens again once they are counted.
MOST_AHEAD_TOKENS: Final = 1 << 21
#: Sets of rows at hand, and of each the parts and the readings: a batch has five parts at most.
REMEMBERED: Final = 4
PARTS: Final = 10

_asked = Known(REMEMBERED).find


class _Way(NamedTuple):
    """How a set of rows is measured: its parts and readings are made once, and go with it."""

    rows: Rows
    part_of: Callable[..., Part]
    reading_of: Callable[..., Reading]


@lru_cache(REMEMBERED)
def _way_of(asked: Asked, detail: Detail) -> _Way:
    rows = Rows.of(asked.rows, whatif=False, detail=detail)
    return _Way(rows, lru_cache(PARTS)(Part), lru_cache(PARTS)(reading))


def evaluation(
    batch: Batch, wanted: Sequence[MethodRow], detail: Detail, further: Callable[[Arrays], Arrays]
) -> Slices[Evaluation]:
    """The answer; rows whose gap or advantages were not sent are left out, and their names may repeat.

    `further` adds to what was found of the batch the tables that are not made here.
    """
    rows = [row for row in wanted if row.applies(batch.gaps, batch.has_advantages)]
    figures: dict[str, Any] | None = None
    methods: list[dict[str, Any]] = []
    details: list[RowDetail] = []
    columns = None
    for some in _lots(rows, batch.source.tokens, batch.source.sequences):
        numbered = [replace(row, name=str(number)) for number, row in enumerate(some)]
        own, part_of, reading_of = _way_of(_asked(numbered), detail)
        found = yield from in_slices(batch, own, part_of, reading_of, experts=figures is None)
        if figures is None:
            figures = StepSummary(further(found.arrays)).figures()
            columns = None if detail == "none" else sequence_columns(batch, found.ranking)
        names = tuple(row.name for row in numbered)
        methods += rows_told([row.definition for row in some], Records.at(found.arrays, paths_of(names)))
        if detail != "none":
            details += row_details(batch, own, found.parts)
    assert figures is not None
    starts = np.concatenate([[0], np.cumsum(batch.source.lengths)]).astype(np.int64)
    return Evaluation(figures, methods, starts, None if detail == "none" else details, columns)


def _lots(rows: Sequence[MethodRow], tokens: int, sequences: int) -> Iterator[list[MethodRow]]:
    """The rows of each slice; at least one, perhaps of none."""
    most = max(1, min(MOST_ROWS, MOST_ROW_SEQUENCES // max(1, sequences)))
    ahead = max(1, MOST_AHEAD_TOKENS // max(1, tokens))
    lot: list[MethodRow] = []
    for row in rows:
        full = looks_ahead(row.rule) and sum(looks_ahead(other.rule) for other in lot) == ahead
        if full or len(lot) == most:
            yield lot
            lot = []
        lot.append(row)
    yield lot
