"""The histograms that Prometheus sees, read off a shard's summary at the families' bounds.

The bounds are exact edges of the stored histograms, so these counts are exact. A log-ratio of exactly minus a bound is
counted beyond that bound in the absolute family: the signed edge belongs to the bucket below it.
"""

from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from offpolicy_monitor.exposition.counters import Histograms
from offpolicy_monitor.families import ABSOLUTE, SIGNED
from offpolicy_monitor.summary.histogram import Histogram, bin_edges
from offpolicy_monitor.summary.step import StepSummary

_MIRRORED = tuple(-bound for bound in ABSOLUTE)


def exposed(summary: StepSummary) -> Histograms:
    """(family, gap) -> cumulative counts, that of all values last."""
    found: dict[tuple[str, str], Sequence[int]] = {}
    for gap, of_gap in summary.gaps.items():
        tokens = _cumulative(of_gap.histogram("log_ratio"))
        sequences = _cumulative(of_gap.histogram("log_geometric_ratio"))
        found["token_log_ratio_nats", gap] = _at(tokens, SIGNED)
        found["sequence_log_geometric_ratio_nats", gap] = _at(sequences, SIGNED)
        outside = [*_at(tokens, _MIRRORED)[:-1], 0]
        found["token_log_ratio_abs_nats", gap] = [a - b for a, b in zip(_at(tokens, ABSOLUTE), outside, strict=True)]
    return found


def _cumulative(histogram: Histogram) -> NDArray[np.int64]:
    """[BINS + 1]: values in the bins before each edge."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(histogram.counts)])


def _at(cumulative: NDArray[np.int64], bounds: tuple[float, ...]) -> list[int]:
    """Values at or below each bound, then all of them."""
    counts: list[int] = cumulative[_places(bounds)].tolist()
    return counts


@cache
def _places(bounds: tuple[float, ...]) -> NDArray[np.int64]:
    """Which edge each bound is; bounds and edges are compared as float32, as the values were when they were counted."""
    upper = bin_edges()[1].astype(np.float32)
    return np.append(np.searchsorted(upper, np.array(bounds, np.float32), side="right"), len(upper))
