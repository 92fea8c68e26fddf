"""Evaluates a batch for /v1/evaluate: its figures, what each row would do with it, and the detail asked for.

One pass over the blocks, in slices: a slice is the figures of a block, or some rows on it. Nothing here is stored.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import numpy as np

from offpolicy_monitor.batch import Origin
from offpolicy_monitor.measure.blocks import DeviceBatch
from offpolicy_monitor.measure.decide import Decider, applicable
from offpolicy_monitor.measure.detail import Decisions, SequenceFigures
from offpolicy_monitor.measure.slices import Slices
from offpolicy_monitor.measure.summarise import method_sums, no_drops, started, summarise_block
from offpolicy_monitor.measure.tables import OF_DATA
from offpolicy_monitor.methods import MethodRow
from offpolicy_monitor.summary.evaluation import Evaluation
from offpolicy_monitor.summary.method import MethodSummary
from offpolicy_monitor.summary.named import Parts, summary_of
from offpolicy_monitor.summary.step import StepSummary, finite

Detail = Literal["none", "sequence", "token"]
#: Tokens times rows that one slice decides at most (some 30 ms), unless one row has more.
SLICE_TOKENS: Final = 1 << 20
#: What a row costs besides its tokens, in tokens.
ROW_TOKENS: Final = 1 << 14


def evaluation(
    loaded: DeviceBatch, wanted: Sequence[MethodRow], detail: Detail, origin: Origin, block_tokens: int
) -> Slices[Evaluation]:
    """The answer; rows whose gap or advantages were not sent are left out, and their names may repeat."""
    batch, rows = loaded.source, applicable(wanted, loaded)
    decider, nothing = Decider(rows, loaded), Decider((), loaded)
    summary = started(loaded, (), origin)
    tried = _tried(rows, {place: no_drops(row) for place, row in enumerate(rows)})
    decisions = [] if detail == "none" else [Decisions(batch, row, detail == "token") for row in rows]
    sequences = None if detail == "none" else SequenceFigures(batch, loaded)
    for block in loaded.blocks(block_tokens):
        summary = summary.merge(summarise_block(block, nothing, origin, OF_DATA, None))
        if sequences is not None:
            sequences.add(block)
        yield
        done, sums = 0, {}
        for place, row in enumerate(rows):
            valid = block.valid(row.gap)
            if valid is None:
                continue
            decision = decider.decide(place, valid.gap)
            sums[place] = method_sums(row, valid.gap, decision)
            if decisions:
                decisions[place].add(block, valid, decision)
            done += valid.gap.segments.tokens + ROW_TOKENS
            if done >= SLICE_TOKENS:
                done = 0
                yield
        tried = tried.merge(_tried(rows, sums))
    return Evaluation(
        summary.figures(),
        [_figures(row, tried.methods[str(place)]) for place, row in enumerate(rows)],
        np.concatenate([[0], np.cumsum(batch.lengths)]).astype(np.int64),
        [row.detail() for row in decisions] if sequences is not None else None,
        sequences.columns() if sequences is not None else None,
    )


def _tried(rows: Sequence[MethodRow], sums: Mapping[int, Mapping[str, float]]) -> StepSummary:
    """A summary of rows alone, called by their places: their names may repeat."""
    specs = {str(place): rows[place].spec for place in sums}
    return summary_of(Parts(methods={str(place): found for place, found in sums.items()}, specs=specs))


def _figures(row: MethodRow, method: MethodSummary) -> dict[str, Any]:
    figures: dict[str, Any] = finite({"name": row.name, **(method.figures() or {})})
    return figures
