"""What belongs to whole sequences: from what the pass left of each to sums, histograms, rules and what-if cells.

Shapes: S sequences of a part, of which those without a token are in nothing; float64 throughout.
"""

import math
from typing import Any, Final, NamedTuple

import numpy as np
from numba import njit

from offpolicy_monitor.fused.arrays import (
    ABS,
    AWAY_LEAST,
    AWAY_MOST,
    BOTH,
    DENOMINATOR,
    DROPS,
    GROWTH,
    K3_SIGNS,
    K3_SUM,
    LARGER_LEAST,
    LEAST,
    LEAST_ABS,
    MISMATCH,
    MOST,
    NEGATIVE_MASS,
    NEGATIVES,
    NEUTRAL,
    NUMERATOR,
    OF_LENGTHS,
    PD_LEAST,
    PD_LEAST_ABS,
    PD_MOST,
    POSITIVE_MASS,
    POSITIVES,
    PRODUCT,
    SQUARE,
    SQUARE_SIGNS,
    SUM,
    WEIGHS,
    Doubles,
    Integers,
    Singles,
)
from offpolicy_monitor.fused.counts import length_group, sign_of
from offpolicy_monitor.fused.sums import EXTREME
from offpolicy_monitor.fused.token import INNER, STAGES, bin_key
from offpolicy_monitor.summary import cells
from offpolicy_monitor.summary.tables import lengths
from offpolicy_monitor.summary.tables.lengths import BINS_PER_POWER
from offpolicy_monitor.vocabulary import EXPONENT_CLAMP, MIXED, NEGATIVE, POSITIVE, WEIGHT_CLAMP

#: Scores of sequences, per gap: what rules compare, and what what-if keeps cells of.
NAMES: Final = (
    "log_geometric_ratio", "log_product_ratio", "log_ratio_min", "log_ratio_max", "log_ratio_abs_max", "k2_mean",
    "k2_sum", "k3_mean", "k3_sum", "k3_max", "growth_mean", "log_ratio_abs_min", "probability_difference_min",
    "probability_difference_max", "probability_difference_abs_min", "kl_away_min", "kl_away_max", "kl_larger_min",
)  # fmt: skip
(
    GEOMETRIC, PRODUCT_RATIO, D_MIN, D_MAX, D_ABS_MAX, K2_MEAN, K2_SUM, K3_MEAN, K3_TOTAL, K3_MAX, GROWTH_MEAN,
    D_ABS_MIN, PD_MIN, PD_MAX, PD_ABS_MIN, AWAY_MIN, AWAY_MAX, LARGER_MIN,
) = range(len(NAMES))  # fmt: skip

#: The sums of summary.gap.SEQUENCE_SUMS without `sequences`, in its order.
_MINIMA, _MAXIMA = (4, 12), (5, 13)
GAP_SUMS: Final = 22
#: Quarters of a power of two of lengths.
QUARTERS: Final = lengths.BINS
#: dropped tokens: low, high; k3 dropped, kept; d^2 dropped, kept; |A| dropped; sequences dropped, touched
RULE_SUMS: Final = 9
_SEQUENCES, _TOUCHED = 7, 8
#: A sequence whose product ratio is below this has vanished from the gradient.
_VANISHING = math.log(0.1)
_CLAMP, _WEIGHT_CLAMP = EXPONENT_CLAMP, WEIGHT_CLAMP
#: The bin by length of each bin of sequences.
_FOLDS = cells.folded(cells.SEQUENCE_BINS)


class SequencePlan(NamedTuple):
    """What is made of the sequences: cells [C, 2] of gap and score; buckets [S, dimensions], and the bins' edges."""

    cells: Integers
    buckets: Integers
    magnitudes: Doubles


class SequenceSums(NamedTuple):
    """What the sequences add up to."""

    gaps: Doubles  # [3, GAP_SUMS]
    cancelled: Doubles  # [3, 5]: sequences, moving, cancelled, vanishing, extreme
    histograms: Singles  # [3, 2, 3, BINS]: of L and D by sign
    rules: Doubles  # [R, RULE_SUMS]
    weights: Doubles  # [R, 6]
    differing: Doubles  # [R]
    token_rules: Singles  # [token rules, 2]: sequences dropped, touched
    lengths: Singles  # [3, 2, QUARTERS]: sequences and tokens
    masked: Singles  # [R, QUARTERS]: sequences, or tokens where signs differ within sequences
    masked_tokens: Singles  # [token rules, QUARTERS]
    buckets: Doubles  # [dimensions, CELL, buckets]
    ends: Doubles  # [2, 4]: a, b, a^2, b^2 of the last and the first tokens
    sequences: Singles  # [C, 4, bins]: by the sign of all a sequence's tokens
    tokens: Singles  # [C, 3, bins]
    masses: Doubles  # [C, 3, bins]
    by_length: Singles  # [C, 4, LENGTHS, coarse bins]


@njit(**INNER)
def add_up(
    tokens: Any, plan: Any, bounds: Any, token_gaps: Any, wanted: Any, left: Any, scores: Any, split: Any, takes: Any,
    out: Any,
) -> Any:  # fmt: skip
    """Tokens, Plan, rules, the gaps of the rules on tokens, SequencePlan and Sequences -> SequenceSums, all zero.

    Room for one sequence at a time: its scores [3, NAMES]; split, of signs [3, 2]; takes [2, 3] bool.

    Returns in bits which signs of A were seen, of tokens, of sequences' means and MIXED, and which lengths.
    """
    for gap in range(3):
        for k in range(2):
            out.gaps[gap, _MINIMA[k]], out.gaps[gap, _MAXIMA[k]] = np.inf, -np.inf
    seen = 0
    for s in range(len(tokens.offsets) - 1):
        n = tokens.offsets[s + 1] - tokens.offsets[s]
        if n == 0:
            continue
        sign, common = _signs(tokens, plan, s, n, left.own[s], split)
        seen |= (1 << sign) | (1 << common) | (1 << (OF_LENGTHS + length_group(n)))
        for k in range(3):
            seen |= (1 << k) if split[k, 0] else 0
        quarter = int(np.floor(np.log2(float(n)) * BINS_PER_POWER))
        for gap in range(3):
            if plan.gaps[gap]:
                _scores(left.gaps[s, gap], n, scores[gap])
                if not plan.alone:
                    _gap(left.gaps[s, gap], left.own[s], gap, n, sign, quarter, scores[gap], plan.splits, out)
        _buckets(plan, wanted, left, s, n, out)
        if not plan.alone:
            if plan.gaps[MISMATCH]:
                _ends(tokens, s, out.ends)
            _cells(wanted, n, common, scores, split, out)
            for r in range(len(token_gaps)):
                if plan.gaps[token_gaps[r]]:
                    _token_rule(left.dropped[r, s], n, quarter, out.token_rules[r], out.masked_tokens[r])
        for r in range(len(bounds.gap)):
            if plan.gaps[bounds.gap[r]]:
                _rule(plan, bounds, r, s, n, quarter, left, scores, split, takes[0], takes[1], out)
    return seen


@njit(**STAGES)
def _signs(tokens: Any, plan: Any, s: Any, n: Any, own: Any, split: Any) -> Any:
    """The sign of a sequence's mean advantage, and the one all its tokens have, or MIXED.

    split [3, 2]: tokens with A < 0, 0, > 0, and their |A|.
    """
    split[:] = 0.0
    if not plan.advantages:
        split[NEUTRAL, 0] = n
        return NEUTRAL, NEUTRAL
    if plan.per_token:
        split[NEGATIVE, 0], split[NEGATIVE, 1] = own[NEGATIVES], own[NEGATIVE_MASS]
        split[POSITIVE, 0], split[POSITIVE, 1] = own[POSITIVES], own[POSITIVE_MASS]
        split[NEUTRAL, 0] = n - own[NEGATIVES] - own[POSITIVES]
        mean = own[POSITIVE_MASS] - own[NEGATIVE_MASS]
    else:
        mean = np.float64(tokens.advantages[s])
        split[sign_of(mean), 0], split[sign_of(mean), 1] = n, abs(mean) * n
    common = MIXED
    for k in range(3):
        if split[k, 0] == n:
            common = k
    return sign_of(mean), common


@njit(**STAGES)
def _scores(x: Any, n: Any, out: Any) -> None:
    out[GEOMETRIC] = x[SUM] / n
    out[PRODUCT_RATIO] = x[SUM]
    out[D_MIN], out[D_MAX] = x[LEAST], x[MOST]
    out[D_ABS_MAX] = max(-x[LEAST], x[MOST])
    out[K3_MEAN], out[K3_TOTAL] = x[K3_SUM] / n, x[K3_SUM]
    out[K3_MAX] = max(_k3(x[LEAST]), _k3(x[MOST]))
    out[GROWTH_MEAN] = x[GROWTH] / n
    out[D_ABS_MIN] = x[LEAST_ABS]
    out[PD_MIN], out[PD_MAX], out[PD_ABS_MIN] = x[PD_LEAST], x[PD_MOST], x[PD_LEAST_ABS]
    out[AWAY_MIN], out[AWAY_MAX], out[LARGER_MIN] = x[AWAY_LEAST], x[AWAY_MOST], x[LARGER_LEAST]
    out[K2_MEAN], out[K2_SUM] = x[SQUARE] / 2 / n, x[SQUARE] / 2


@njit(**INNER)
def _k3(d: Any) -> Any:
    """expm1(clip(d, +-80)) - d; by its series near 0, where the difference has no digits."""
    if abs(d) < 0.01:
        return d * d * (1 / 2 + d * (1 / 6 + d * (1 / 24 + d * (1 / 120 + d * (1 / 720 + d / 5040)))))
    return np.expm1(min(max(d, -_CLAMP), _CLAMP)) - d


@njit(**STAGES)
def _gap(x: Any, own: Any, gap: Any, n: Any, sign: Any, quarter: Any, scores: Any, splits: Any, out: Any) -> None:
    """A gap's sums over sequences, its histograms and its lengths."""
    L, D = scores[GEOMETRIC], scores[PRODUCT_RATIO]
    total = out.gaps[gap]
    total[0] += scores[K3_MEAN]
    total[1] += x[ABS] / n
    total[2] += L
    total[3] += abs(L)
    total[4] = min(total[4], L)
    total[5] = max(total[5], L)
    bounded = min(max(L, -_CLAMP), _CLAMP)
    _weigh(bounded, -np.inf, np.inf, 1, total[6:10])
    total[10] += np.exp(-bounded)
    total[11] += D
    total[12] = min(total[12], D)
    total[13] = max(total[13], D)
    _weigh(min(max(D, -_WEIGHT_CLAMP), _WEIGHT_CLAMP), -np.inf, np.inf, 1, total[14:18])
    for side in range(2):
        mean = own[NUMERATOR[gap] if side == 0 else DENOMINATOR[gap]] / n
        total[18 + side] += np.exp(-min(max(mean, -_CLAMP), _CLAMP))
        total[20 + side] -= mean
    table = out.cancelled[gap]
    table[0] += 1
    if x[ABS] > 0.0:
        table[1] += 1
        table[2] += min(max((x[ABS] - abs(D)) / x[ABS], 0.0), 1.0)
    table[3] += 1 if D < _VANISHING else 0
    table[4] += 1 if x[PD_LEAST] < -EXTREME or x[PD_MOST] > EXTREME else 0
    out.histograms[gap, 0, sign, _bin(L, splits)] += 1
    out.histograms[gap, 1, sign, _bin(D, splits)] += 1
    out.lengths[gap, 0, quarter] += 1
    out.lengths[gap, 1, quarter] += n


@njit(**INNER)
def _bin(value: Any, splits: Any) -> Any:
    """The bin of summary.histogram."""
    single = np.float32(value)
    key = bin_key(single)
    return 2 * key + (1 if single > splits[key] else 0)


@njit(**STAGES)
def _buckets(plan: Any, wanted: Any, left: Any, s: Any, n: Any, out: Any) -> None:
    """Breakdowns by what stands at sequences."""
    for dimension in range(wanted.buckets.shape[1]):
        cell = out.buckets[dimension, :, wanted.buckets[s, dimension]]
        cell[0] += n
        for gap in range(3):
            if plan.gaps[gap]:
                for k in range(4):
                    cell[1 + 4 * gap + k] += left.gaps[s, gap, SUM + k]
        cell[13] += left.own[s, PRODUCT]


@njit(**STAGES)
def _ends(tokens: Any, s: Any, out: Any) -> None:
    """The moments of a sequence's last and first token, which are in all but one of its pairs of neighbours."""
    for side in range(2):
        t = tokens.offsets[s + 1] - 1 if side == 0 else tokens.offsets[s]
        a, b = np.float64(tokens.logprobs[1][t]), np.float64(tokens.logprobs[0][t])
        out[side, 0] += a
        out[side, 1] += b
        out[side, 2] += a * a
        out[side, 3] += b * b


@njit(**STAGES)
def rank(value: Any, magnitudes: Any) -> Any:
    """The bin of a score among those whose edges are `magnitudes` on both sides; at an edge the one nearer to 0.

    Halves without a branch on what is compared: half of those would be guessed wrongly.
    """
    magnitude = abs(value)
    low, left = 0, len(magnitudes)
    while left > 1:
        half = left // 2
        low += half if magnitudes[low + half - 1] < magnitude else 0
        left -= half
    low += 1 if magnitudes[low] < magnitude else 0
    return len(magnitudes) - low if value < 0 else len(magnitudes) + low


@njit(**STAGES)
def _cells(wanted: Any, n: Any, common: Any, scores: Any, split: Any, out: Any) -> None:
    """What-if cells of scores of sequences."""
    length = length_group(n)
    for c in range(len(wanted.cells)):
        value = scores[wanted.cells[c, 0], wanted.cells[c, 1]]
        index = rank(value, wanted.magnitudes)
        out.sequences[c, common, index] += 1
        out.by_length[c, common, length, _FOLDS[index]] += 1
        for sign in range(3):
            out.tokens[c, sign, index] += np.int64(split[sign, 0])
            out.masses[c, sign, index] += split[sign, 1]


@njit(**STAGES)
def _token_rule(dropped: Any, n: Any, quarter: Any, out: Any, masked: Any) -> None:
    """Sequences of which a rule on tokens drops all, and some."""
    if dropped:
        out[0] += 1 if dropped == n else 0
        out[1] += 1
        masked[quarter] += dropped


@njit(**STAGES)
def _decided(bounds: Any, r: Any, scores: Any, takes: Any) -> Any:
    """Whether the sequence is low, and whether it is high but not low; takes [3]: which signs of A the rule drops."""
    low, high = False, False
    for band in range(bounds.ends[r], bounds.ends[r + 1]):
        value = scores[bounds.score[band]]
        low |= value < bounds.low[band]
        high |= value > bounds.high[band]
    high &= not low
    for sign in range(3):
        takes[sign] = (low and sign - NEUTRAL <= bounds.low_sign[r]) or (high and sign - NEUTRAL >= bounds.high_sign[r])
    return low, high


@njit(**STAGES)
def _rule(
    plan: Any, bounds: Any, r: Any, s: Any, n: Any, quarter: Any, left: Any, scores: Any, split: Any, takes: Any,
    there: Any, out: Any,
) -> None:  # fmt: skip
    """What a rule on sequences drops or weighs; `takes` and `there` [3] are room for the signs of A that it drops."""
    gap, anchor = bounds.gap[r], bounds.anchor[r]
    low, high = _decided(bounds, r, scores[gap], takes)
    if plan.joint and anchor >= 0:
        _decided(bounds, r, scores[anchor], there)
        for sign in range(3):
            out.differing[r] += split[sign, 0] if takes[sign] != there[sign] else 0.0
    if plan.alone:
        return
    x, kept = left.gaps[s, gap], out.rules[r]
    if bounds.form[r] != DROPS:
        sums = out.weights[r]
        if bounds.form[r] == BOTH and (low or high):
            sums[2] -= n
            sums[3] += n
        else:
            score = min(max(scores[gap, bounds.weighed[r]], -_CLAMP), _CLAMP)
            sums[4] = max(sums[4], _weigh(score, bounds.least[r], bounds.most[r], n, sums))
    if bounds.form[r] == WEIGHS:
        out.weights[r, 5] += n if low or high else 0
        takes[:] = False
    if len(left.takes):
        for sign in range(3):
            left.takes[r, s] |= np.uint8(takes[sign]) << np.uint8(sign)
    dropped = 0.0
    for sign in range(3):
        number = split[sign, 0] if takes[sign] else 0.0
        dropped += number
        kept[0 if low else 1] += number
        kept[6] += split[sign, 1] if takes[sign] else 0.0
    if dropped == 0.0 or dropped == n:
        kept[2 if dropped else 3] += x[K3_SUM]
        kept[4 if dropped else 5] += x[SQUARE]
    else:
        for sign in range(3):
            kept[2 if takes[sign] else 3] += x[K3_SIGNS + sign]
            kept[4 if takes[sign] else 5] += x[SQUARE_SIGNS + sign]
    if dropped:
        kept[_SEQUENCES] += 1 if dropped == n else 0
        kept[_TOUCHED] += 1
        whole = not plan.per_token or bounds.low_sign[r] == np.inf
        out.masked[r, quarter] += 1 if whole else np.int64(dropped)


@njit(**INNER)
def _weigh(log_ratio: Any, least: Any, most: Any, n: Any, out: Any) -> Any:
    """Sums of x, x^2, x - 1, (x - 1)^2 for x = clip(exp(log_ratio), least, most) of n tokens, and x."""
    weight = min(max(np.exp(log_ratio), least), most)
    excess = min(max(np.expm1(log_ratio), least - 1.0), most - 1.0)
    out[0] += weight * n
    out[1] += weight * weight * n
    out[2] += excess * n
    out[3] += excess * excess * n
    return weight
