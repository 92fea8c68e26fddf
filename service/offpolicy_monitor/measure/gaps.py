"""The part of a summary that every gap has: its sums, extremes and histograms, and the cross terms between gaps.

Tables: `gaps/<gap>`, `histograms/<gap>` and `cross`.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeVar

import numpy as np
import torch

from offpolicy_monitor.batch import Array
from offpolicy_monitor.core.cells import Tally
from offpolicy_monitor.core.gap_sums import cross_terms, extremes, sequence_terms
from offpolicy_monitor.measure.blocks import DeviceBatch
from offpolicy_monitor.measure.totals import Sums
from offpolicy_monitor.measure.view import BlockView
from offpolicy_monitor.summary.gap import DEVIATION, GAP, QUANTITIES, SIGNS
from offpolicy_monitor.summary.histogram import BINS

_Part = TypeVar("_Part", torch.Tensor, Tally)
#: What a gap keeps that follows from what is summed of it.
_DERIVED: Final = frozenset({DEVIATION, "exact_tokens"})


def gap_sums(view: BlockView) -> Sums:
    """Sums, terms of sequences and extremes of gaps [G'], tallies of histograms, and cross terms."""
    gaps = view.gaps
    ends = extremes(gaps)
    return Sums(
        {**_under("gaps", gaps.columns.totals), **_under("histograms", _histograms(view))},
        {**_under("gaps", sequence_terms(gaps)), **_under("cross", cross_terms(gaps))},
        _under("gaps", ends["min"]),
        _under("gaps", ends["max"]),
    )


def _under(prefix: str, arrays: Mapping[str, _Part]) -> dict[str, _Part]:
    return {f"{prefix}/{name}": array for name, array in arrays.items()}


def _histograms(view: BlockView) -> dict[str, Tally]:
    """[1, G, signs x bins] of tokens, and of the two quantities of sequences [1, 2, G, signs x bins].

    One sign, which is unknown, without advantages.
    """
    advantages, signs, tokens, sequences = view.gaps.advantages, view.sequence_signs, view.bins, view.sequence_bins
    number = 1 if advantages is None else len(SIGNS) - 1
    if advantages is not None and signs is not None:
        tokens = torch.add(tokens, advantages.token_groups, alpha=BINS)
        sequences = torch.add(sequences, signs, alpha=BINS)
    return {
        "tokens": Tally(tokens, number * BINS, (view.valid,)),
        "sequences": Tally(sequences, number * BINS, (view.filled,)),
    }


def gap_tables(arrays: Mapping[str, Array], batch: DeviceBatch) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The tables of the gaps that were sent, without a valid token as counts of 0; and cross terms if there are."""
    histograms = np.concatenate([arrays["histograms/tokens"], arrays["histograms/sequences"][0]])
    histograms = histograms.reshape(len(QUANTITIES), len(batch.gaps), -1, BINS)
    for index, gap in enumerate(batch.gaps):
        found = {row.name: arrays[f"gaps/{row.name}"][index] for row in GAP.rows if row.name not in _DERIVED}
        found["exact_tokens"] = found["tokens"] - arrays["gaps/changed_tokens"][index]
        found["probability_diff_max"] = max(found["probability_diff_max"], 0.0)  # without a token no magnitude
        square, apart = (arrays[f"gaps/{name}"][index] for name in ("log_ratio_apart_square", "log_ratio_apart"))
        yield f"gaps/{gap}", {**found, DEVIATION: _deviation(square, apart, found["tokens"])}
        yield (
            f"histograms/{gap}",
            {quantity: _by_sign(counts[index]) for quantity, counts in zip(QUANTITIES, histograms, strict=True)},
        )
    if batch.joint and arrays["cross/tokens"]:
        yield "cross", {name.removeprefix("cross/"): arrays[name] for name in arrays if name.startswith("cross/")}


def _deviation(square: float, apart: float, tokens: int) -> float:
    """The sum of squares about the mean, of the one about a centre and what is apart from it; infinite where one is."""
    return max(float(square - apart**2 / tokens), 0.0) if tokens and np.isfinite(square) else square


def _by_sign(counts: Array) -> Array:
    """[signs, bins]: by every sign, of counts by those that there are."""
    whole = np.zeros((len(SIGNS), BINS), np.int64)
    if len(counts) == 1:
        whole[-1] = counts
    else:
        whole[: len(counts)] = counts
    return whole
