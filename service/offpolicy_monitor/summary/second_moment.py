"""Where M2PO cuts: the largest d^2 go until the mean d^2 of the rest is at most the threshold.

Read off the histogram of d, whose bins bound what each token adds.
"""

from functools import cache

import numpy as np
from numpy.typing import NDArray

from offpolicy_monitor.summary.cells import Floats
from offpolicy_monitor.summary.gap import GapSummary
from offpolicy_monitor.summary.histogram import BINS, LARGEST_KEY, bin_edges
from offpolicy_monitor.vocabulary import NEGATIVE, POSITIVE


def cutoffs(gap: GapSummary, thresholds: Floats, outward: bool = False) -> tuple[Floats, Floats, Floats]:
    """|d| beyond which tokens go, for each threshold of the mean d^2: an estimate, the least and the most; [m] each.

    The least has every token at its bin's upper edge, the most at its lower edge. Infinite where nothing goes. With
    `outward` only tokens with A d > 0 are cut among, and the mean is theirs.
    """
    low, high = _edges()
    fewest, counts, greatest = (counts_by_magnitude(gap, outward, share) for share in (0.0, 0.5, 1.0))
    middle = (low + high) / 2
    tokens = np.cumsum(counts)
    least = low[_passing(fewest, high, thresholds)]
    most = np.append(high, np.inf)[_passing(greatest, low, thresholds)]
    index = _passing(counts, middle, thresholds)
    before, squares = tokens[index] - counts[index], np.cumsum(counts * middle**2)[index] - (counts * middle**2)[index]
    with np.errstate(divide="ignore", invalid="ignore"):
        part = (thresholds * before - squares) / (middle[index] ** 2 - thresholds) / counts[index]
    estimate = low[index] + np.nan_to_num(part).clip(0, 1) * (high - low)[index]
    if outward:
        free = thresholds >= fewest @ high**2 / max(fewest.sum(), 1)
    else:
        free = thresholds >= gap.sums.get("log_ratio_square", 0.0) / max(gap.sums.get("tokens", 0), 1)
    estimate, least, most = (np.where(free, np.inf, cut) for cut in (estimate, least, most))
    return np.clip(estimate, least, most), least, most


def threshold_for(counts: Floats, share: float) -> Floats:
    """The mean d^2 of what is left when this share of the tokens goes: counts [n, keys] as below -> [n]."""
    low, high = _edges()
    tokens = np.cumsum(counts, axis=1)
    left = np.minimum(tokens, (1 - share) * tokens[:, -1:])
    squares = np.diff(left, axis=1, prepend=0) @ ((low + high) / 2) ** 2
    thresholds = np.full(len(counts), np.nan)
    np.divide(squares, left[:, -1], out=thresholds, where=left[:, -1] > 0)
    return thresholds


def _passing(counts: Floats, magnitude: Floats, thresholds: Floats) -> NDArray[np.int64]:
    """The bin in which the mean of magnitude^2, from the smallest on, passes each threshold; the last if none."""
    with np.errstate(invalid="ignore"):
        means = np.nan_to_num(np.cumsum(counts * magnitude**2) / np.cumsum(counts))
    return np.minimum(np.searchsorted(means, thresholds, side="right"), len(counts) - 1)


@cache
def _edges() -> tuple[Floats, Floats]:
    """Lower and upper edge of each key of |d|; the last, unbounded key is given a width of its own."""
    low, high = (edge.reshape(-1, 2)[LARGEST_KEY:] for edge in bin_edges())
    lower, upper = np.maximum(low[:, 0], 0.0), high[:, 1]
    return lower, np.where(np.isfinite(upper), upper, 2 * lower)


def counts_by_magnitude(gap: GapSummary, outward: bool = False, near_zero: float = 0.5) -> Floats:
    """[LARGEST_KEY + 1]: tokens by the key of |d|, whatever the sign of d or of A; or of those with A d > 0.

    Of these the key next to 0 counts this share of those that may be among them, since it has no sign of d.
    """
    if outward and "log_ratio" in gap.histograms:
        by_sign = gap.histograms["log_ratio"].reshape(-1, BINS // 2, 2).sum(2).astype(np.float64)
        rising, falling = by_sign[POSITIVE, LARGEST_KEY:], by_sign[NEGATIVE, : LARGEST_KEY + 1][::-1]
        found: Floats = rising + falling
        found[0] = near_zero * max(
            by_sign[[NEGATIVE, POSITIVE], LARGEST_KEY].sum() - gap.sums.get("exact_tokens", 0), 0
        )
        return found
    signed = gap.histogram("log_ratio").counts.reshape(-1, 2).sum(1).astype(np.float64)
    counts: Floats = signed[LARGEST_KEY:] + np.append(0.0, signed[:LARGEST_KEY][::-1])
    return counts
