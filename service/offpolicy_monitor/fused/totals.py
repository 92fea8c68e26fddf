"""What is made once every token is counted: what rules that look ahead drop, what belongs to sequences, and what tables
have in other units.

Results that a table and Result have in the same form are finished where they are.
"""

from typing import Any, Final

import numpy as np
from numba import njit

from offpolicy_monitor.fused import ahead, sequences
from offpolicy_monitor.fused.arrays import (
    CHANGED,
    DENOMINATOR,
    DENSITY,
    DEVIATION,
    DIFFERENCE,
    DIFFERENCE_MAX,
    DIFFERENCE_SQUARE,
    HIGH,
    K3_SUM,
    LEAST,
    LENGTHS,
    LOW,
    MEAN,
    MISMATCH,
    MOST,
    NUMERATOR,
    OF_LENGTHS,
    PRODUCT,
    SEEN,
    SUM,
    TOKEN_SUMS,
    W_MAX,
)
from offpolicy_monitor.fused.sums import join
from offpolicy_monitor.fused.token import CLAMP, MASS_KEYS, PASS, SHORT, WITHIN
from offpolicy_monitor.summary import cells

#: Where probabilities add up to less they are summed in float64: float32 holds none below 1e-38 well, which anywhere
#: else are nothing beside the rest.
TINY_PROBABILITIES: Final = 1e-30
#: gap -> its p q among Sums.products: mu old, old pi, mu pi.
_PRODUCT = (6, 7, 8)
#: Of a float64 significand, the bits that a mass does not keep; half of the last that it keeps, less one.
_DROPPED_BITS = 53 - cells.MASS_BITS
_BELOW_HALF = (1 << (_DROPPED_BITS - 1)) - 1
_CLAMP = float(CLAMP)
#: What tables are there only where there is something to see: bits of what `finish` answers.
MIDDLE, EXACT, PAIRS, GRIDS = 1, 2, 4, (8, 16, 32)


#: The bin by length of each bin of tokens.
_FOLDS = cells.folded(cells.TOKEN_BINS)


@njit(**PASS)
def add(total: Any, one: Any) -> None:
    """Add the Sums of a chunk to those of the chunks before it; maxima and deviations are no sums."""
    for gap in range(3):
        mine, theirs = total.tokens[gap], one.tokens[gap]
        if theirs[SEEN]:
            join(mine, theirs[SEEN], theirs[MEAN], theirs[DEVIATION])
        for k in range(TOKEN_SUMS):
            if k == DIFFERENCE_MAX:
                mine[k] = max(mine[k], theirs[k])
            elif k < SEEN:
                mine[k] += theirs[k]
    for rule in range(len(total.weights)):
        for k in range(total.weights.shape[1]):
            mine, theirs = total.weights[rule, k], one.weights[rule, k]
            total.weights[rule, k] = max(mine, theirs) if k == W_MAX else mine + theirs
    _grow(total.products, one.products)
    _grow(total.advantages, one.advantages)
    _grow(total.rules, one.rules)
    _grow(total.differing, one.differing)
    _grow(total.runs, one.runs)
    _grow(total.mu, one.mu)
    _grow(total.signs, one.signs)
    _grow(total.masses, one.masses)
    _grow(total.regression, one.regression)
    _grow(total.neighbours, one.neighbours)


@njit(**WITHIN)
def _grow(mine: Any, theirs: Any) -> None:
    """mine += theirs, of one shape: numba's own would compile what writes two shapes into the text of an error."""
    to, of = mine.ravel(), theirs.ravel()
    for k in range(len(to)):
        to[k] += of[k]


@njit(**PASS)
def finish(tokens: Any, held: Any, wanted: Any, left: Any, ranking: Any) -> Any:
    """Finish the Result of Held -> which tables there are, and what was seen (sequences.add_up).

    First what needs all tokens of a sequence, or of the part: rules that look ahead, rules on sequences. ranking
    [4, 3, S]: what sequences are ranked by, where the part has it.
    """
    plan, gaps, result = held.plan, held.tokens.gap, held.result
    if not plan.alone:
        ahead.decide(tokens, plan, gaps, held.ahead, result.sums.rules, left)
    scores, split = np.zeros((3, len(sequences.NAMES))), np.zeros((3, 2))
    takes = np.zeros((2, 3), np.bool_)
    seen = sequences.add_up(tokens, plan, held.sequences, gaps, wanted, left, scores, split, takes, result.of_sequences)
    _totals(tokens, plan, left, result.totals)
    if plan.alone:
        return 0, seen
    _ranking(tokens.offsets, plan.gaps, left.gaps, ranking)
    _gaps(tokens, plan, result.sums, result.totals)
    _cells(result.sums, result.counts, result.of_sequences, result.totals, seen)
    for rule in range(len(result.sums.rules)):
        result.totals.dropped[rule] = result.sums.rules[rule, LOW] + result.sums.rules[rule, HIGH]
    for rule in range(len(result.of_sequences.rules)):
        kept = result.of_sequences.rules[rule]
        result.totals.dropped_of_sequences[rule] = kept[LOW] + kept[HIGH]
    return _present(plan, result), seen


@njit(**SHORT)
def finish_short(tokens: Any, held: Any, wanted: Any, left: Any, ranking: Any) -> Any:
    """`finish` of a short batch."""
    return finish(tokens, held, wanted, left, ranking)


@njit(**WITHIN)
def _totals(tokens: Any, plan: Any, left: Any, out: Any) -> None:
    """Sums over all sequences, and extremes."""
    filled = 0
    out.gaps[:, LEAST] = np.inf
    out.gaps[:, MOST] = -np.inf
    for s in range(len(tokens.offsets) - 1):
        if tokens.offsets[s + 1] == tokens.offsets[s]:
            continue
        filled += 1
        out.product[0] += left.own[s, PRODUCT]
        for gap in range(3):
            if plan.gaps[gap]:
                x, total = left.gaps[s, gap], out.gaps[gap]
                least, most = min(total[LEAST], x[LEAST]), max(total[MOST], x[MOST])
                for k in range(LEAST):
                    total[k] += x[k]
                total[LEAST], total[MOST] = least, most
    out.size[0] = tokens.offsets[-1]
    out.size[1] = filled
    out.size[2] = tokens.offsets[-1] - filled


@njit(**WITHIN)
def _ranking(offsets: Any, gaps: Any, left: Any, out: Any) -> None:
    """Valid tokens, max |d|, mean d and the sum of k3 of each sequence."""
    for s in range(len(offsets) - 1):
        n = offsets[s + 1] - offsets[s]
        for gap in range(3):
            if gaps[gap] and n:
                x = left[s, gap]
                out[0, gap, s], out[1, gap, s] = n, max(-x[LEAST], x[MOST])
                out[2, gap, s], out[3, gap, s] = x[SUM] / n, x[K3_SUM]


@njit(**WITHIN)
def _gaps(tokens: Any, plan: Any, sums: Any, out: Any) -> None:
    """What gaps have in other units: tokens whose d is 0, deviations that rounding took below 0, probabilities."""
    p = sums.products
    for gap in range(3):
        if not plan.gaps[gap]:
            continue
        x, a, b, into = sums.tokens[gap], NUMERATOR[gap], DENOMINATOR[gap], out.probabilities[gap]
        x[CHANGED] = tokens.offsets[-1] - x[CHANGED]
        x[DEVIATION] = max(x[DEVIATION], 0.0)
        if min(p[a], p[b]) < TINY_PROBABILITIES:
            _tiny_probabilities(tokens.logprobs[a], tokens.logprobs[b], into)
        else:
            into[0], into[1], into[2] = x[DIFFERENCE], x[DIFFERENCE_SQUARE], x[DIFFERENCE_MAX]
            into[3], into[4], into[5], into[6], into[7] = p[a], p[b], p[3 + a], p[3 + b], p[_PRODUCT[gap]]


@njit(**WITHIN)
def _tiny_probabilities(a: Any, b: Any, out: Any) -> None:
    """The same in float64, where float32 holds none of them well."""
    for i in range(len(a)):
        above, below = np.float64(a[i]), np.float64(b[i])
        p, q = np.exp(min(above, _CLAMP)), np.exp(min(below, _CLAMP))
        difference = max(p, q) * -np.expm1(-abs(above - below))
        out[0] += difference
        out[1] += difference * difference
        out[2] = max(out[2], difference)
        out[3] += p
        out[4] += q
        out[5] += p * p
        out[6] += q * q
        out[7] += p * q


@njit(**WITHIN)
def _cells(sums: Any, counts: Any, of: Any, out: Any, seen: Any) -> None:
    """What-if cells by bin and by length; |A| in few bits; one bank each; the ends of sequences taken off."""
    for c in range(len(counts.cells)):
        for sign in range(3):
            for length in range(LENGTHS):
                if not (seen >> sign) & (seen >> (OF_LENGTHS + length)) & 1:
                    continue
                own = counts.cells[c, sign, length]
                for k in range(len(own)):
                    if own[k]:
                        out.cells[c, sign, k] += own[k]
                        out.by_length[c, sign, length, _FOLDS[k]] += own[k]
    rounded(sums.masses.reshape(-1))
    rounded(of.masses.reshape(-1))
    for gap in range(3):
        banks = counts.masses[gap]
        for key in range(MASS_KEYS):
            banks[0, key] += banks[1, key] + banks[2, key] + banks[3, key]
    for k in range(len(counts.densities)):
        banks = counts.densities[k]
        for cell in range(DENSITY):
            banks[0, cell] += banks[1, cell] + banks[2, cell] + banks[3, cell]
    for k in range(4):
        heads, tails = sums.neighbours[2 + k] - of.ends[0, k], sums.neighbours[2 + k] - of.ends[1, k]
        of.ends[0, k], of.ends[1, k] = heads, tails


@njit(**WITHIN)
def rounded(masses: Any) -> None:
    """|A| in MASS_BITS bits per cell, ties to even."""
    bits = masses.view(np.int64)
    for i in range(len(bits)):
        odd = (bits[i] >> _DROPPED_BITS) & 1
        bits[i] = ((bits[i] + _BELOW_HALF + odd) >> _DROPPED_BITS) << _DROPPED_BITS


@njit(**WITHIN)
def _present(plan: Any, result: Any) -> Any:
    if not plan.gaps[MISMATCH]:
        return 0
    regression, grids = result.sums.regression, result.counts.grids
    found = MIDDLE if regression[0] else 0
    found |= EXACT if regression[6] else 0
    found |= PAIRS if result.totals.size[2] else 0
    for column in range(3):
        found |= GRIDS[column] if grids[column, 0] else 0
    return found
