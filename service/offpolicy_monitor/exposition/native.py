"""Native histograms: a stored histogram as the sparse exponential buckets of Prometheus, schema 3.

Bucket i of schema 3 holds magnitudes above 2**((i - 1) / 8) up to and with 2**(i / 8), on each side of a zero bucket:
each is 9 % wider than the one before. A stored bin is one of 32 equal parts of a power of two, so that its edges are
bounds of buckets at whole powers of two alone. Every bin goes as a whole to the bucket that has its middle: a bucket's
bound then stands for the nearest edge of a bin, at most BOUND_ERROR of it away, and counts up to that edge are exact.

A value that equals an edge lies above it in a stored bin (away from 0) and below the bound in a bucket: which of the
two buckets counts it depends on the bin, so shares at a bound may be those of `<` or of `<=`. What is smaller than
2**-24 is in the zero bucket; what is larger than 2**8 is in the first bucket above that. A schema finer than 4 would
have buckets narrower than a bin, and some of them always empty.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from offpolicy_monitor.summary.histogram import LARGEST_EXPONENT, SMALLEST_EXPONENT, Counts, bin_edges

SCHEMA: Final = 3
BUCKETS_PER_POWER: Final = 1 << SCHEMA
ZERO_THRESHOLD: Final = 2.0**SMALLEST_EXPONENT
#: A bound stands for a value this share of it away, at most: half a bin.
BOUND_ERROR: Final = 1 / 64
#: Indexes of the buckets that a value can fall into.
SMALLEST: Final = SMALLEST_EXPONENT * BUCKETS_PER_POWER + 1
LARGEST: Final = LARGEST_EXPONENT * BUCKETS_PER_POWER + 1
SIDE: Final = LARGEST - SMALLEST + 1
#: Empty buckets that are sent as zeros because a new span would take more bytes.
GAP: Final = 2


@dataclass(frozen=True)
class Side:
    """Buckets of one sign: (empty buckets before, how many follow) for each span, and steps from count to count."""

    spans: tuple[tuple[int, int], ...]
    deltas: tuple[int, ...]


@cache
def _buckets() -> NDArray[np.intp]:
    """[BINS] where each bin counts: 0 .. SIDE - 1 negative from the largest magnitude, SIDE zero, then positive."""
    lower, upper = bin_edges()
    low, high = np.abs(lower), np.abs(upper)
    overflow = LARGEST_EXPONENT + 1
    middle = np.where(np.isinf(low + high), 2.0**overflow, (low + high) / 2)
    with np.errstate(divide="ignore"):
        index = np.ceil(np.log2(middle) * BUCKETS_PER_POWER)
    bucket = np.clip(index, SMALLEST, LARGEST).astype(np.intp) - SMALLEST
    is_zero = (low <= ZERO_THRESHOLD) & (high <= ZERO_THRESHOLD)
    signed = np.where(lower + upper < 0, SIDE - 1 - bucket, SIDE + 1 + bucket)
    return np.where(is_zero, SIDE, signed)


def firsts() -> NDArray[np.intp]:
    """The first bin of each bucket that has one."""
    return np.flatnonzero(np.diff(_buckets(), prepend=-1))


def bucketed(counts: Counts, bins: NDArray[np.intp] | None = None) -> Counts:
    """[2 * SIDE + 1] the counts of a stored histogram by bucket, from the most negative to the largest.

    `counts` are of its BINS bins, or of stretches of them that end with no bucket inside and begin at `bins`.
    """
    buckets = _buckets() if bins is None else _buckets()[bins]
    if counts.shape != buckets.shape:
        raise ValueError(f"counts must be [{len(buckets)}], got {counts.shape}")
    filled = np.flatnonzero(counts)
    found = np.zeros(2 * SIDE + 1, np.int64)
    np.add.at(found, buckets[filled], counts[filled])
    return found


def folded(buckets: Counts) -> Counts:
    """The same of magnitudes: what was negative counts with the positive."""
    found = np.zeros_like(buckets)
    found[SIDE:] = buckets[SIDE:]
    found[SIDE + 1 :] += buckets[:SIDE][::-1]
    return found


def zeros(buckets: Counts) -> int:
    """How many values are in the zero bucket."""
    return int(buckets[SIDE])


def negative(buckets: Counts) -> Side:
    """Buckets below zero, by ascending magnitude."""
    return _side(buckets[:SIDE][::-1])


def positive(buckets: Counts) -> Side:
    """Buckets above zero."""
    return _side(buckets[SIDE + 1 :])


def _side(counts: Counts) -> Side:
    """`counts` [SIDE] from the smallest magnitude on."""
    spans, sent = [], []
    end = -SMALLEST  # so that the first span begins with the index of its first bucket
    for first, last in _stretches(np.flatnonzero(counts).tolist()):
        spans.append((first - end, last + 1 - first))
        sent += counts[first : last + 1].tolist()
        end = last + 1
    return Side(tuple(spans), tuple(np.diff(sent, prepend=0).tolist()) if sent else ())


def _stretches(filled: list[int]) -> Iterator[tuple[int, int]]:
    """First and last of each stretch of filled buckets with no more than GAP empty ones between two."""
    if not filled:
        return
    first = last = filled[0]
    for bucket in filled[1:]:
        if bucket - last > GAP + 1:
            yield first, last
            first = bucket
        last = bucket
    yield first, last
