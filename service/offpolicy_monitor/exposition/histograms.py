"""The histograms that Prometheus sees, read off a shard's summary: classic buckets at all bounds, and native ones.

The bounds are exact edges of the stored histograms, so these counts are exact. A log-ratio of exactly minus a bound is
counted beyond that bound in the absolute family: the signed edge belongs to the bucket below it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from operator import add, attrgetter
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from offpolicy_monitor.exposition import native
from offpolicy_monitor.families import ABSOLUTE, SIGNED, Family
from offpolicy_monitor.summary.gap import SHOWN, SIGNS, shown_from
from offpolicy_monitor.summary.histogram import BINS, Counts, bin_edges
from offpolicy_monitor.summary.remembered import remembering
from offpolicy_monitor.summary.rows import name_of
from offpolicy_monitor.summary.scheme import COUNTS, REMEMBERED, SUMS, Scheme
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

    def at(self, family: Family, bounds: tuple[float, ...]) -> list[int]:
        """Values at or below each of these bounds, which are among the family's, then all of them."""
        counts: list[int] = self.cumulative[_chosen(family.all_bounds, bounds)].tolist()
        return counts


@dataclass(frozen=True, eq=False)
class Exposed:
    """What is kept of one gap until it is shown. Never changed once made.

    tokens, sequences  [stretches] counts of the log-ratios and of the mean log-ratios of sequences (_stretches)
    sums               of the log-ratios, of their magnitudes, and of the means of sequences
    """

    tokens: Counts
    sequences: Counts
    sums: tuple[float, float, float]

    def plus(self, other: "Exposed") -> "Exposed":
        """What both counted."""
        first, second, third = map(add, self.sums, other.sums)
        return Exposed(self.tokens + other.tokens, self.sequences + other.sequences, (first, second, third))

    @cached_property
    def families(self) -> Mapping[str, Counted]:
        """What each family shows; only a scrape asks."""
        signed, of_sequences = _signed(self.tokens, self.sums[0]), _signed(self.sequences, self.sums[2])
        edges = _cumulative(self.tokens)
        outside = np.append(edges[_ends(_MIRRORED)[:-1]], 0)
        absolute = Counted(edges[_ends(ABSOLUTE)] - outside, native.folded(signed.buckets), self.sums[1])
        return {
            "token_log_ratio_nats": signed,
            "sequence_log_geometric_ratio_nats": of_sequences,
            "token_log_ratio_abs_nats": absolute,
        }


#: By gap.
Histograms = Mapping[str, Exposed]
#: Bytes of arrays that are remembered of schemes, of some 0.4 MB each.
MOST_BYTES: Final = 32 << 20
_SUMMED: Final = ("log_ratio", "log_ratio_abs", "log_geometric")


class OfShard(NamedTuple):
    """What a shard adds to its run's histograms, as it is stored.

    where, counts  [n] which of its counts are not zero among those that come first, and what they are
    sums           [gaps, 3]
    """

    gaps: tuple[str, ...]
    scheme: Scheme
    where: Counts
    counts: Counts
    sums: NDArray[np.float64]

    @classmethod
    def of(cls, summary: StepSummary) -> "OfShard":
        """It is made for each shard, so nothing is worked out here."""
        (where, counts), gaps, scheme = summary.arrays.filled, summary.gap_names, summary.arrays.scheme.base
        few = where.searchsorted(len(_into(scheme))) if gaps else 0
        return cls(gaps, scheme, where[:few], counts[:few], summary.arrays.section(SUMS)[_summed(scheme, gaps)])


def exposed(shards: Sequence[OfShard]) -> Histograms:
    """What shards, which have the same gaps in the same scheme, add together."""
    gaps, scheme = shards[0].gaps, shards[0].scheme
    where, found = (np.concatenate([*map(attrgetter(name), shards)]) for name in ("where", "counts"))
    counts = np.zeros(len(SHOWN) * len(gaps) * len(_stretches()) + 1, np.int64)
    np.add.at(counts, _into(scheme)[where], found)
    of_gaps = counts[:-1].reshape(len(SHOWN), len(gaps), len(_stretches()))
    sums = np.sum([shard.sums for shard in shards], axis=0).tolist()
    return {
        gap: Exposed(tokens, sequences, (first, second, third))
        for gap, tokens, sequences, (first, second, third) in zip(gaps, *of_gaps, sums, strict=True)
    }


@remembering(lambda made, scheme: made.nbytes, MOST_BYTES)
def _into(scheme: Scheme) -> NDArray[np.int32]:
    """[counts of the scheme] the stretch that each is added to, over SHOWN and the gaps; past all others for none."""
    begins, stretches = shown_from(scheme), len(_stretches())
    found = np.full(scheme.sizes[COUNTS], len(begins) * stretches, np.int32)
    for histogram, begin in enumerate(begins.tolist()):
        found[begin : begin + len(SIGNS) * BINS] = np.tile(_stretch_of() + histogram * stretches, len(SIGNS))
    return found


@lru_cache(REMEMBERED)
def _summed(scheme: Scheme, gaps: tuple[str, ...]) -> NDArray[np.intp]:
    """[gaps, 3] where among the sums of a scheme those of a gap are that are shown; every stored version has them."""
    starts = [scheme.spans[name_of(f"gaps/{gap}", row)].start for gap in gaps for row in _SUMMED]
    return np.array(starts, np.intp).reshape(len(gaps), len(_SUMMED))


def _signed(counts: Counts, total: float) -> Counted:
    buckets = native.bucketed(counts, _stretches())
    return Counted(_cumulative(counts)[_ends(SIGNED)], buckets, total)


def _cumulative(counts: Counts) -> Counts:
    """[stretches + 1]: values before each stretch, then all."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])


@cache
def _stretches() -> NDArray[np.intp]:
    """First bins of the stretches in which no bound and no native bucket ends."""
    firsts = np.concatenate([_edges(SIGNED), _edges(ABSOLUTE), _edges(_MIRRORED), native.firsts(), [0]])
    return np.unique(firsts[firsts < BINS])


@cache
def _stretch_of() -> NDArray[np.intp]:
    """[BINS] which stretch each bin is in."""
    return np.repeat(np.arange(len(_stretches())), np.diff(_stretches(), append=BINS))


@cache
def _ends(bounds: tuple[float, ...]) -> NDArray[np.intp]:
    """Which stretch begins at each bound, then the end of the last one."""
    return np.searchsorted(_stretches(), _edges(bounds))


@cache
def _edges(bounds: tuple[float, ...]) -> NDArray[np.intp]:
    """Which edge each bound is, then the last edge; compared as float32, as the values were when they were counted."""
    upper = bin_edges()[1].astype(np.float32)
    return np.append(np.searchsorted(upper, np.array(bounds, np.float32), side="right"), len(upper))


@cache
def _chosen(all_bounds: tuple[float, ...], bounds: tuple[float, ...]) -> list[int]:
    return [*map(all_bounds.index, bounds), len(all_bounds)]
