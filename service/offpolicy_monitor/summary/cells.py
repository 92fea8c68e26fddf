"""The cells in which what-if keeps what rules look at: bins of a score by the sign of A, and coarser ones by length.

Bins of tokens and of sequences are halves of a power of two of the score's magnitude, cut again at thresholds in use;
bins by length are powers of four. A sequence whose score equals an edge stands in the bin nearer to zero, as rules keep
it; a token may stand in either, since a threshold and its logarithm differ by a rounding.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from offpolicy_monitor.summary import histogram

Floats = NDArray[np.float64]

#: Magnitudes below 2**-14 share the bin around zero (of tokens 2**-8: no rule on tokens has a threshold below 0.4 %).
LEAST_OF_SEQUENCES: Final = -14
LEAST_OF_TOKENS: Final = -8
LARGEST: Final = 8
LARGEST_FLOAT: Final = float(np.finfo(np.float64).max)

#: Thresholds of presets and papers: ratios, whose logs are compared, and others as they are (max k2 = 0.05 as |d|).
_RATIOS: Final = (0.2, 0.5, 0.8, 0.99, 0.999, 0.9997, 1.0004, 1.001, 1.002, 1.01, 1.2, 1.27, 1.28, 2, 3, 5, 1e-4)
_OTHERS: Final = (1e-4, 1e-3, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, math.sqrt(2 * 0.05))

#: |A| is added up in this many bits per cell: a 512th of it at most is rounded away, and it takes a third of the bytes.
MASS_BITS: Final = 8

#: A length group is a power of two; from 2**23 tokens on all are one.
LENGTHS: Final = 24


@dataclass(frozen=True, eq=False)
class Bins:
    """Bins of a signed score. `edges` [E] float64, ascending: bin i lies between edges i - 1 and i, the first and the
    last are unbounded.
    """

    edges: Floats

    @property
    def number(self) -> int:
        """How many bins there are."""
        return len(self.edges) + 1

    @cached_property
    def zero(self) -> int:
        """The bin around zero."""
        return int(np.searchsorted(self.edges, 0.0))

    @property
    def magnitudes(self) -> Floats:
        """The edges above zero, ascending."""
        return self.edges[self.zero :]

    def above(self, counts: Floats, bounds: Floats) -> tuple[Floats, Floats]:
        """What lies strictly above each bound: counts [..., number], bounds [m] -> estimates and errors [..., m].

        With bounds [n, m], the n of counts [n, g, number] have bounds of their own: [n, g, m].
        Exact, with error 0, where the bound is an edge (within a millionth). Else the bin that it falls into counts in
        proportion, and the error is the larger of the bin's two parts.
        """
        index = np.searchsorted(self.edges, bounds, side="left")
        low, high = np.append(-np.inf, self.edges)[index], np.append(self.edges, np.inf)[index]
        bounded = np.isfinite(low) & np.isfinite(high)
        part = np.full(bounds.shape, 0.5)
        part[bounded] = (high[bounded] - bounds[bounded]) / (high[bounded] - low[bounded])
        part[np.isclose(bounds, high, rtol=1e-6, atol=0)] = 0
        part[np.isclose(bounds, low, rtol=1e-6, atol=0)] = 1
        part = part[:, None] if bounds.ndim == 2 else part
        inside, exact = _at(counts, index), (part == 0) | (part == 1)
        higher = np.concatenate([counts[..., ::-1].cumsum(-1)[..., ::-1], np.zeros((*counts.shape[:-1], 1))], axis=-1)
        return _at(higher, index + 1) + inside * part, np.where(exact, 0.0, inside * np.maximum(part, 1 - part))

    def below(self, counts: Floats, bounds: Floats) -> tuple[Floats, Floats]:
        """What lies strictly below each bound, as `above` has it."""
        return Bins(-self.edges[::-1]).above(counts[..., ::-1], -bounds)


def _at(values: Floats, indices: NDArray[np.int64]) -> Floats:
    """The entries at indices [m] of all, or at indices [n, m] of the n."""
    if indices.ndim == 1:
        return values[..., indices]
    return np.take_along_axis(values, indices[:, None], -1)


def _halves(least: int) -> list[float]:
    return [part * 2.0**power for power in range(least, LARGEST + 1) for part in (1.0, 1.5)]


def _both_sides(magnitudes: Iterable[float]) -> Floats:
    return np.unique([sign * magnitude for magnitude in magnitudes for sign in (-1, 1)])


def _thresholds() -> list[float]:
    return [*(abs(math.log(ratio)) for ratio in _RATIOS), *_OTHERS]


def _exact_for_tokens() -> list[float]:
    """Bounds at which summary.histogram, of which token bins are made, is exact."""
    return [bound for bound in histogram.EXACT_BOUNDS if abs(bound) > 2.0**LEAST_OF_TOKENS]


TOKEN_BINS: Final = Bins(np.unique([*_both_sides(_halves(LEAST_OF_TOKENS)), *_exact_for_tokens()]))
SEQUENCE_BINS: Final = Bins(_both_sides([*_halves(LEAST_OF_SEQUENCES), *_thresholds()]))
LENGTH_BINS: Final = Bins(_both_sides(4.0**power for power in range(LEAST_OF_SEQUENCES // 2, LARGEST // 2 + 1)))


def folded(bins: Bins) -> NDArray[np.int64]:
    """The bin among LENGTH_BINS of each of finer ones."""
    edges = np.concatenate([[-np.inf], bins.edges, [np.inf]]).clip(-LARGEST_FLOAT / 2, LARGEST_FLOAT / 2)
    found: NDArray[np.int64] = np.searchsorted(LENGTH_BINS.edges, (edges[1:] + edges[:-1]) / 2)
    return found


@cache
def token_bins() -> NDArray[np.int64]:
    """The bin among TOKEN_BINS of each bin of summary.histogram."""
    low, high = histogram.bin_edges()
    middle = (np.maximum(low, -LARGEST_FLOAT) + np.minimum(high, LARGEST_FLOAT)) / 2
    return np.searchsorted(TOKEN_BINS.edges, middle)
