"""What goes into the pass over the tokens and what comes out: tuples of arrays that compiled code takes as they are.

Shapes: T tokens of S sequences, R token rules, C cells, K runs. Gaps are numbered mismatch, staleness, total, and the
columns of log-probs mu, old, pi; of a gap that is not there nothing is read or written.
"""

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from offpolicy_monitor.summary import cells, histogram
from offpolicy_monitor.summary.evaluation import Detail
from offpolicy_monitor.summary.tables import density
from offpolicy_monitor.vocabulary import GAP_LOGPROBS, GAPS, LOGPROBS, ZERO

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Singles = NDArray[np.int32]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]
Marks = NDArray[np.uint8]
#: Indices of bins: without a sign, an index needs no look at whether it counts from the end.
Shorts = NDArray[np.uint16]

MISMATCH, STALENESS, TOTAL = range(len(GAPS))
#: Columns of log-probs: numerator and denominator of each gap.
NUMERATOR: Final = tuple(LOGPROBS.index(above) for above, _ in GAP_LOGPROBS.values())
DENOMINATOR: Final = tuple(LOGPROBS.index(below) for _, below in GAP_LOGPROBS.values())

#: Tokens of a block: its columns fit a second-level cache, and those of one stage a first-level one.
BLOCK: Final = 512
#: Tokens that share a decision on which formula they need.
STRIP: Final = 32

#: Scores of tokens by themselves: what rules compare, and what what-if keeps cells of.
NAMES: Final = ("log_ratio", "log_ratio_abs", "k3", "probability_difference", "kl_away", "kl_larger")
SCORES: Final = len(NAMES)
LOG_RATIO, MAGNITUDE, K3, PROBABILITY, AWAY, LARGER = range(SCORES)
#: Forms of a rule: it drops, or weighs, or of sequences drops some and weighs the others.
DROPS, WEIGHS, BOTH = range(3)

#: Gaps whose tokens are counted by two log-probs at a time: those that begin at mu.
DENSE: Final = tuple(map(GAPS.index, density.GAPS))
DENSITY: Final = density.BINS**2

#: The sign, as a group of counts, of an advantage that is zero or unknown.
NEUTRAL: Final = ZERO
BINS: Final = histogram.BINS
LENGTHS: Final = cells.LENGTHS
#: What a part saw, in bits: signs of A, and from OF_LENGTHS on groups of lengths. What it did not see has no counts.
OF_LENGTHS: Final = 4
#: The bucket of a log mu that is not finite, which is none.
NO_BUCKET: Final = 8
MU_BUCKETS: Final = 9

# Sums over tokens, per gap.
(
    K3_REVERSE, JS, RATIO, EXCESS, WEIGHT, WEIGHT_SQUARE, WEIGHT_EXCESS, WEIGHT_EXCESS_SQUARE, TAIL, CHANGED, CLAMPED,
    DIFFERENCE, DIFFERENCE_SQUARE, DIFFERENCE_MAX, ADVANTAGE_EXCESS, MASS_SQUARE, BAD, OUTWARD, OUTWARD_SQUARE, SEEN,
    MEAN, DEVIATION,
) = range(22)  # fmt: skip
TOKEN_SUMS: Final = 22

# Sums and extremes of a sequence, per gap.
(
    SUM, ABS, SQUARE, K3_SUM, GROWTH, LEAST, MOST, LEAST_ABS, PD_LEAST, PD_MOST, PD_LEAST_ABS, AWAY_LEAST, AWAY_MOST,
    LARGER_LEAST,
) = range(14)  # fmt: skip
#: k3 and d^2 of tokens with A < 0, A == 0, A > 0, where these differ within sequences.
K3_SIGNS, SQUARE_SIGNS = 14, 17
SEQUENCE_SUMS: Final = 20
MINIMA: Final = (LEAST, LEAST_ABS, PD_LEAST, PD_LEAST_ABS, AWAY_LEAST, LARGER_LEAST)
MAXIMA: Final = (MOST, PD_MOST, AWAY_MOST)

# Of a sequence whatever the gap: sums of log mu, old, pi, of m s, tokens with A < 0 and A > 0, their |A|.
MU_SUM, OLD_SUM, PI_SUM, PRODUCT, NEGATIVES, POSITIVES, NEGATIVE_MASS, POSITIVE_MASS = range(8)
OWN_SUMS: Final = 8

# What a rule dropped.
LOW, HIGH, K3_DROPPED, K3_KEPT, SQUARE_DROPPED, SQUARE_KEPT, MASS_DROPPED = range(7)
RULE_SUMS: Final = 7
# What a weight came to.
W, W_SQUARE, W_EXCESS, W_EXCESS_SQUARE, W_MAX, CUT = range(6)
WEIGHT_SUMS: Final = 6

#: A breakdown's cell: tokens, then d, |d|, d^2 and k3 of each gap, then m s; each of all buckets, as tables have it.
CELL: Final = 14


def fitting(values: Any, dtype: Any) -> Any:
    """Values as compiled code takes them, of this dtype and in one piece: themselves where they are."""
    return values if values.dtype == dtype and values.flags.carray else np.array(values, dtype, order="C")


class Bounds(NamedTuple):
    """Rules: those of tokens in float32, those of sequences in float64. Rule r has bands ends[r] .. ends[r + 1].

    What is outside any of its bands is dropped: below where A <= low_sign, above where A >= high_sign; or its weight is
    r within `least` and `most`.
    """

    gap: Integers  # [R]
    form: Integers  # [R]: DROPS, WEIGHS or BOTH
    anchor: Integers  # [R]: the gap on which the rule would stand with the other anchor, or -1
    ends: Integers  # [R + 1]
    score: Integers  # [bands]
    low: Any
    high: Any
    low_sign: Any  # [R]
    high_sign: Any
    least: Any
    most: Any
    weighed: Integers  # [R]: the score whose exponential is the weight


class Plan(NamedTuple):
    """What is made of the tokens."""

    gaps: Flags  # [3]
    divergences: Flags  # [3]: whether binary KLs are needed
    cells: Integers  # [C, 2]: gap and score of what-if cells
    joint: bool  # the tokens are valid for all three gaps, and figures of all are made
    alone: bool  # nothing but the figures of all three gaps is wanted
    advantages: bool
    per_token: bool  # advantages stand at tokens, not at sequences
    grids: bool
    magnitudes: bool  # a rule looks at |d|
    positive: bool  # some log-prob is above 0
    densities: bool  # tokens are counted by two log-probs at a time
    splits: Floats  # of summary.histogram, +BIG for none
    token_bins: Marks  # the bin among TOKEN_BINS of each bin of summary.histogram
    edges: Floats  # [7]: log mu at which a bucket of mu begins


class Tokens(NamedTuple):
    """The tokens of a part: log-probs of the columns that it needs, finite, or empty; and their runs. log mu is there
    wherever it was sent, since it is a dimension too.

    A run stands in one sequence, and in one bucket of each dimension that changes within sequences.
    """

    logprobs: tuple[Floats, Floats, Floats]  # [T] each
    advantages: Floats  # [T], [S] or [0]
    offsets: Integers  # [S + 1]
    runs: Integers  # [K + 1]
    owners: Integers  # [K]: the sequence of each run
    buckets: Integers  # [K, dimensions]


NOBODY_ASKS: Final = np.zeros((0, 0), np.uint8)


class Sequences(NamedTuple):
    """What the pass leaves of each sequence."""

    gaps: Doubles  # [S, 3, SEQUENCE_SUMS]
    own: Doubles  # [S, OWN_SUMS]
    dropped: Singles  # [R, S]: tokens that each rule on tokens dropped
    kept: Marks  # [R, T] of each of them which tokens it keeps, or NOBODY_ASKS
    takes: Marks  # [sequence rules, S]: bits of the signs of A whose tokens each drops, or NOBODY_ASKS


class Sums(NamedTuple):
    """What is added up over a chunk of sequences, in their order."""

    tokens: Doubles  # [3, TOKEN_SUMS]
    products: Doubles  # [9]
    advantages: Doubles  # [2]: |A| and A^2
    rules: Doubles  # [R, RULE_SUMS]
    weights: Doubles  # [R, WEIGHT_SUMS]
    differing: Doubles  # [R]
    runs: Doubles  # [dimensions, CELL, buckets]
    mu: Doubles  # [CELL, MU_BUCKETS]
    signs: Doubles  # [CELL, 4]
    masses: Doubles  # [C, 3, bins]
    regression: Doubles  # [7]
    neighbours: Doubles  # [6]


class Counts(NamedTuple):
    """What is counted, in any order."""

    histograms: Singles  # [3, 3 * BINS]: by sign and bin
    masses: Singles  # [3, 4, MASS_KEYS]: four banks
    cells: Singles  # [C, 3, LENGTHS, bins]
    grids: Singles  # [3, 8]
    densities: Singles  # [DENSE, 4, DENSITY]: four banks


class Block(NamedTuple):
    """Columns of a block, [BLOCK] each."""

    scores: Floats  # [SCORES, 3, ...]
    ratio: Floats  # [3, ...]
    excess: Floats
    growth: Floats
    inverse: Floats
    k3_reverse: Floats
    js: Floats
    p: Floats  # [3, ...]
    rest: Floats  # [3, ...]: 1 - p
    advantages: Floats
    groups: Shorts  # where the counts of the token's sign begin
    bins: Shorts  # [3, ...]
    keys: Shorts
    sides: (
        Floats  # [2, ...]: -1, 0 or 1 where a rule of several bands is low, keeps, is high; there with its other anchor
    )


def sequences(offsets: Integers, rules: int, sequence_rules: int, detail: Detail) -> Sequences:
    """Room for what is left of sequences, of which each chunk begins its own; `detail` as Rows has it."""
    number = len(offsets) - 1
    return Sequences(
        np.empty((number, 3, SEQUENCE_SUMS)), np.zeros((number, OWN_SUMS)), np.zeros((rules, number), np.int32),
        np.ones((rules, offsets[-1]), np.uint8) if detail == "token" else NOBODY_ASKS,
        np.zeros((sequence_rules, number), np.uint8) if detail != "none" else NOBODY_ASKS,
    )  # fmt: skip


def block() -> Block:
    """Room for the columns of a block."""
    floats: Any = lambda *shape: np.zeros((*shape, BLOCK), np.float32)  # noqa: E731
    whole: Any = lambda *shape: np.zeros((*shape, BLOCK), np.uint16)  # noqa: E731
    return Block(
        floats(SCORES, 3), floats(3), floats(3), floats(3), floats(), floats(), floats(), floats(3), floats(3),
        floats(), whole(), whole(3), whole(), floats(2),
    )  # fmt: skip
