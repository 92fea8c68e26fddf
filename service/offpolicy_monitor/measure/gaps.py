"""The part of a summary that every gap has: its sums, extremes and histograms, and the cross terms between gaps.

Tables: `gaps/<gap>`, `histograms/<gap>` and `cross`.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
import torch

from offpolicy_monitor.batch import Array
from offpolicy_monitor.core.cells import Tally, tallies
from offpolicy_monitor.core.gap_sums import cross_terms, extremes, sequence_terms, token_sums
from offpolicy_monitor.measure.blocks import DeviceBatch
from offpolicy_monitor.measure.totals import Sums
from offpolicy_monitor.measure.view import BlockView
from offpolicy_monitor.summary.gap import DEVIATION, GAP, QUANTITIES, SIGNS
from offpolicy_monitor.summary.histogram import BINS

#: What a gap keeps that follows from what is summed of it.
_DERIVED: Final = frozenset({DEVIATION, "exact_tokens"})


def gap_sums(view: BlockView) -> Sums:
    """Sums, terms of sequences and extremes of gaps [G'], histograms [G, signs, bins], and cross terms."""
    gaps, joint = view.gaps, view.block.batch.joint
    centres = torch.from_numpy(np.resize(view.block.batch.centres, gaps.number))
    ends = extremes(gaps)
    sums = token_sums(gaps, centres.to(view.block.batch.device, non_blocking=True))
    cross = cross_terms(gaps, joint["mismatch"], joint["staleness"], view.cross_of_sequences) if joint else {}
    return Sums(
        {**_under("gaps", sums), **_under("histograms", _histograms(view))},
        {**_under("gaps", sequence_terms(gaps)), **_under("cross", cross)},
        _under("gaps", ends["min"]),
        _under("gaps", ends["max"]),
    )


def _under(prefix: str, arrays: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {f"{prefix}/{name}": array for name, array in arrays.items()}


def _histograms(view: BlockView) -> dict[str, torch.Tensor]:
    """[G, signs, bins] of each quantity; one sign, which is unknown, without advantages."""
    advantages, signs, tokens, sequences = view.gaps.advantages, view.sequence_signs, view.bins, view.sequence_bins
    number = 1 if advantages is None else len(SIGNS) - 1
    if advantages is not None and signs is not None:
        tokens = torch.add(tokens, advantages.token_groups, alpha=BINS)
        sequences = torch.add(sequences, signs, alpha=BINS)
    shape = (view.number, number, BINS)
    filled = None if view.filled is None else view.filled.repeat(2, 1)
    of_tokens, of_sequences = tallies(
        Tally(tokens, number * BINS, (view.valid,)), Tally(sequences.flatten(0, 1), number * BINS, (filled,))
    )
    of_sequences = of_sequences.view(2, *shape)
    return {
        "log_ratio": of_tokens.view(shape),
        "log_geometric_ratio": of_sequences.select(0, 0),
        "log_product_ratio": of_sequences.select(0, 1),
    }


def gap_tables(arrays: Mapping[str, Array], batch: DeviceBatch) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The tables of the gaps that were sent, without a valid token as counts of 0; and cross terms if there are."""
    for index, gap in enumerate(batch.gaps):
        found = {row.name: arrays[f"gaps/{row.name}"][index] for row in GAP.rows if row.name not in _DERIVED}
        found["exact_tokens"] = found["tokens"] - arrays["gaps/changed_tokens"][index]
        apart = arrays["gaps/log_ratio_apart_square"][index]
        yield f"gaps/{gap}", {**found, DEVIATION: _deviation(apart, batch.centres[index], found)}
        yield (
            f"histograms/{gap}",
            {quantity: _by_sign(arrays[f"histograms/{quantity}"][index]) for quantity in QUANTITIES},
        )
    if batch.joint and arrays["cross/tokens"]:
        yield "cross", {name.removeprefix("cross/"): arrays[name] for name in arrays if name.startswith("cross/")}


def _deviation(apart: float, centre: float, sums: Mapping[str, Any]) -> float:
    """The sum of squares about the mean, of the one about a centre; infinite where that is."""
    if not sums["tokens"] or np.isinf(apart):
        return apart
    beyond = sums["log_ratio"] - sums["tokens"] * centre
    return max(float(apart - beyond**2 / sums["tokens"]), 0.0)


def _by_sign(counts: Array) -> Array:
    """[signs, bins]: by every sign, of counts by those that there are."""
    whole = np.zeros((len(SIGNS), BINS), np.int64)
    if len(counts) == 1:
        whole[-1] = counts
    else:
        whole[: len(counts)] = counts
    return whole
