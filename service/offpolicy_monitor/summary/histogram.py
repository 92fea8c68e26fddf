"""Signed log-ratio histograms that merge by addition, with bounded relative error and some exact edges.

A magnitude from 2**-24 to 2**8 falls into one of 32 equal parts of its power of two (the top bits of its float32
pattern, so no logarithm is needed); smaller ones count as zero, larger ones share an outermost bin. Whole powers of
two are edges, which is what Prometheus native histograms of schema 0 need. A bin that contains one of `EXACT_BOUNDS`
is split there, so counts at those bounds are exact. This module reads counts; core.histogram makes them.

Bins are numbered in the order of their values: 2 * (LARGEST_KEY + signed key), plus 1 above the split.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from offpolicy_monitor.vocabulary import RATIO_THRESHOLDS

MANTISSA_BITS: Final = 5
SMALLEST_EXPONENT: Final = -24
LARGEST_EXPONENT: Final = 8
LARGEST_KEY: Final = 1 + ((LARGEST_EXPONENT - SMALLEST_EXPONENT) << MANTISSA_BITS)
BINS: Final = 2 * (2 * LARGEST_KEY + 1)

#: |estimate - value| <= RELATIVE_ERROR * |value| for any single value of magnitude 2**-24 .. 2**8.
RELATIVE_ERROR: Final = 2.0**-MANTISSA_BITS

_MAGNITUDES: Final = tuple(m * 10.0**e for e in range(-6, 2) for m in (1, 2, 5) if m * 10.0**e <= 10)
_THRESHOLDS: Final = tuple(map(math.log, RATIO_THRESHOLDS))

#: Counts at or below each of these are exact: 1-2-5 from 1e-6 to 10 on both sides, 0, and default thresholds as logs.
EXACT_BOUNDS: Final = tuple(sorted({0.0, *_MAGNITUDES, *(-m for m in _MAGNITUDES), *_THRESHOLDS}))

Counts = NDArray[np.int64]
Floats = NDArray[np.float64]


def _magnitude_edges() -> NDArray[np.float64]:
    """Lower edges of the keys 1..LARGEST_KEY, ascending."""
    parts = 1 + np.arange(1 << MANTISSA_BITS) / (1 << MANTISSA_BITS)
    powers = 2.0 ** np.arange(SMALLEST_EXPONENT, LARGEST_EXPONENT)
    return np.append((powers[:, None] * parts).ravel(), 2.0**LARGEST_EXPONENT)


@cache
def splits() -> NDArray[np.float32]:
    """[2 * LARGEST_KEY + 1] float32: the exact bound inside each unsplit bin, or +inf."""
    edges = _magnitude_edges()
    table = np.full(2 * LARGEST_KEY + 1, np.inf, np.float32)
    for bound in EXACT_BOUNDS:
        key = int(np.searchsorted(edges, abs(np.float32(bound)), side="right"))
        table[LARGEST_KEY + (key if bound >= 0 else -key)] = bound
    return table


@cache
def bin_edges() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Lower and upper edge of each of the BINS bins, ascending; the second half of an unsplit bin is empty."""
    lower_magnitude = np.concatenate([[0.0], _magnitude_edges()])
    upper_magnitude = np.append(_magnitude_edges(), np.inf)
    low = np.concatenate([-upper_magnitude[:0:-1], [-_magnitude_edges()[0]], lower_magnitude[1:]])
    high = np.concatenate([-lower_magnitude[:0:-1], [_magnitude_edges()[0]], upper_magnitude[1:]])
    split = np.minimum(splits().astype(np.float64), high)
    return np.stack([low, split], 1).ravel(), np.stack([split, high], 1).ravel()


@dataclass(frozen=True, eq=False)
class Histogram:
    """Counts of a signed quantity. `counts` [BINS] int64, never changed after construction."""

    counts: Counts

    @classmethod
    def empty(cls) -> "Histogram":
        """No values."""
        return cls(np.zeros(BINS, np.int64))

    @property
    def total(self) -> int:
        """How many values were counted."""
        return int(self.counts.sum())

    def merge(self, other: "Histogram") -> "Histogram":
        """The histogram of both sets of values."""
        return Histogram(self.counts + other.counts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Histogram) and bool((self.counts == other.counts).all())

    def quantiles(self, fractions: Iterable[float], lowest: float, highest: float) -> list[float]:
        """Quantiles by linear interpolation between order statistics, each within RELATIVE_ERROR of its value.

        `lowest` and `highest` are the exact extremes, which bound every estimate. Needs at least one value.
        """
        found = self.alone.quantiles(tuple(fractions), np.array([lowest]), np.array([highest]))
        quantiles: list[float] = found[0].tolist()
        return quantiles

    @property
    def alone(self) -> "Histograms":
        """This one by its filled bins. ValueError for counts of other bins."""
        if self.counts.shape != (BINS,):
            raise ValueError(f"counts must be [{BINS}], got {self.counts.shape}")
        filled = np.flatnonzero(self.counts)
        return Histograms(1, filled, self.counts[filled])


@dataclass(frozen=True, eq=False)
class Histograms:
    """Several histograms by their bins that are filled.

    number  R, how many there are
    bins    [n] int64, ascending: bin b of histogram r is r * BINS + b
    counts  [n] int64, none of them 0
    """

    number: int
    bins: Counts
    counts: Counts

    @classmethod
    def of(cls, number: int, bins: Counts, counts: Counts) -> "Histograms":
        """Histograms of bins that may come in any order, and twice."""
        if not len(bins):
            return cls(number, bins, counts)
        order = bins.argsort(kind="stable")
        bins = bins[order]
        first = np.append(0, np.flatnonzero(bins[1:] != bins[:-1]) + 1)
        return cls(number, bins[first], np.add.reduceat(counts[order], first))

    @cached_property
    def before(self) -> Counts:
        """[n + 1]: values of all histograms before each filled bin; of all of them last."""
        return np.concatenate([[0], self.counts.cumsum()])

    @cached_property
    def ends(self) -> Counts:
        """[R + 1]: values of all histograms before each; of all of them last."""
        return self.before[self.bins.searchsorted(np.arange(self.number + 1) * BINS)]

    def below(self, edges: Counts) -> Counts:
        """[R, E]: values in the bins before each edge [E], of every histogram."""
        first = np.arange(self.number)[:, None] * BINS
        return self.before[self.bins.searchsorted(first + edges)] - self.ends[:-1, None]

    def quantiles(self, fractions: Sequence[float], lowest: Floats, highest: Floats) -> Floats:
        """[R, Q] as those of one histogram; `lowest` and `highest` [R]. NaN of a histogram without values."""
        totals = np.diff(self.ends)[:, None]
        ranks = np.array(fractions) * (totals - 1)
        below, above = np.floor(ranks), np.ceil(ranks)
        found = self._order_statistics(np.concatenate([below, above], 1), totals, lowest[:, None], highest[:, None])
        low, high = found[:, : len(fractions)], found[:, len(fractions) :]
        with np.errstate(over="ignore", invalid="ignore"):
            return np.where(totals > 0, low + (high - low) * (ranks - below), np.nan)

    def _order_statistics(self, ranks: Floats, totals: Counts, lowest: Floats, highest: Floats) -> Floats:
        """Estimate the values of the given ranks [R, N] (0 is the smallest), values spread evenly within a bin."""
        if not len(self.bins):
            return np.full(ranks.shape, np.nan)
        lower, upper = bin_edges()
        ends = self.ends[:-1, None]
        index = np.minimum(self.before[1:].searchsorted(ranks + ends, side="right"), len(self.bins) - 1)
        chosen = self.bins[index] % BINS
        inside = (ranks - (self.before[index] - ends - 1)) / (self.counts[index] + 1)
        low, high = np.maximum(lower[chosen], lowest), np.minimum(upper[chosen], highest)
        with np.errstate(over="ignore", invalid="ignore"):  # float64 log-probs near overflow have infinite log-ratios
            inner = low + (high - low) * inside
        values = np.where(chosen // 2 == LARGEST_KEY, 0.0, inner)
        return np.where(ranks == 0, lowest, np.where(ranks == totals - 1, highest, values))
