"""The histograms that Prometheus sees, read off a shard's summary: classic buckets at all bounds, and native ones.

The bounds are exact edges of the stored histograms, so these counts are exact. A log-ratio of exactly minus a bound is
counted beyond that bound in the absolute family: the signed edge belongs to the bucket below it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from offpolicy_monitor.exposition import native
from offpolicy_monitor.families import ABSOLUTE, SIGNED, Family
from offpolicy_monitor.summary.gap import GapSummary
from offpolicy_monitor.summary.histogram import Counts, Histogram, bin_edges
from offpolicy_monitor.summary.step import StepSummary

_MIRRORED: Final = tuple(-bound for bound in ABSOLUTE)


@dataclass(frozen=True, eq=False)
class Counted:
    """A family's histogram of one gap: what was counted of all values so far, and their sum.

    `cumulative` [bounds + 1] counts at or below each of the family's `all_bounds`, that of all values last; `buckets`
    as native.bucketed gives them. Never changed once made.
    """

    cumulative: Counts
    buckets: Counts
    sum: float

    @classmethod
    def nothing(cls, family: Family) -> "Counted":
        """No values."""
        return cls(np.zeros(len(family.all_bounds) + 1, np.int64), np.zeros(2 * native.SIDE + 1, np.int64), 0.0)

    @property
    def total(self) -> int:
        """How many values were counted."""
        return int(self.cumulative[-1])

    def plus(self, other: "Counted") -> "Counted":
        """What both counted."""
        return Counted(self.cumulative + other.cumulative, self.buckets + other.buckets, self.sum + other.sum)

    def at(self, family: Family, bounds: tuple[float, ...]) -> list[int]:
        """Values at or below each of these bounds, which are among the family's, then all of them."""
        counts: list[int] = self.cumulative[_chosen(family.all_bounds, bounds)].tolist()
        return counts


#: (family, gap) -> what was counted.
Histograms = Mapping[tuple[str, str], Counted]


def exposed(summary: StepSummary) -> Histograms:
    """What a shard adds to its run's histograms."""
    found: dict[tuple[str, str], Counted] = {}
    for gap, of_gap in summary.gaps.items():
        for name, counted in _of_gap(of_gap).items():
            found[name, gap] = counted
    return found


def _of_gap(gap: GapSummary) -> dict[str, Counted]:
    tokens, sequences = gap.histogram("log_ratio"), gap.histogram("log_geometric_ratio")
    signed = _signed(tokens, gap.sums.get("log_ratio", 0.0))
    edges = _cumulative(tokens)
    outside = np.append(edges[_edges(_MIRRORED)[:-1]], 0)
    absolute = edges[_edges(ABSOLUTE)] - outside
    return {
        "token_log_ratio_nats": signed,
        "sequence_log_geometric_ratio_nats": _signed(sequences, gap.sums.get("log_geometric", 0.0)),
        "token_log_ratio_abs_nats": Counted(
            absolute, native.folded(signed.buckets), gap.sums.get("log_ratio_abs", 0.0)
        ),
    }


def _signed(histogram: Histogram, total: float) -> Counted:
    return Counted(_cumulative(histogram)[_edges(SIGNED)], native.bucketed(histogram.counts), total)


def _cumulative(histogram: Histogram) -> Counts:
    """[BINS + 1]: values in the bins before each edge."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(histogram.counts)])


@cache
def _edges(bounds: tuple[float, ...]) -> NDArray[np.intp]:
    """Which edge each bound is, then the last edge; compared as float32, as the values were when they were counted."""
    upper = bin_edges()[1].astype(np.float32)
    return np.append(np.searchsorted(upper, np.array(bounds, np.float32), side="right"), len(upper))


@cache
def _chosen(all_bounds: tuple[float, ...], bounds: tuple[float, ...]) -> list[int]:
    return [*map(all_bounds.index, bounds), len(all_bounds)]
