"""What each rule on tokens drops or weighs in a block, once its columns and extremes are known; by sequence too."""

from typing import Any

import numpy as np
from numba import njit

from offpolicy_monitor.fused import rules
from offpolicy_monitor.fused.arrays import DROPS, K3, K3_KEPT, LOG_RATIO, MASS_DROPPED, SQUARE_KEPT
from offpolicy_monitor.fused.token import HALF, STAGES, ZERO


@njit(**STAGES)
def decide(
    tokens: Any, plan: Any, bounds: Any, begin: Any, n: Any, sequence: Any, block: Any, whole: Any, seen: Any,
    out: Any, into: Any,
) -> None:  # fmt: skip
    """What each rule on tokens drops or weighs; nothing is looked at where the block's extremes are within bounds."""
    A = block.advantages[:n]
    for r in range(len(bounds.gap)):
        gap, anchor = bounds.gap[r], bounds.anchor[r]
        if not plan.gaps[gap]:
            continue
        d, k3 = block.scores[LOG_RATIO, gap, :n], block.scores[K3, gap, :n]
        x, band, inside = _score(bounds, r, gap, n, block.scores, seen, block.sides[0])
        if plan.alone:
            pass
        elif bounds.form[r] != DROPS:
            least, most = bounds.least[r], bounds.most[r]
            rules.weights(d, block.ratio[gap], block.excess[gap], band, least, most, into.weights[r])
        elif inside:
            into.rules[r, K3_KEPT] += whole[gap, 2]
            into.rules[r, SQUARE_KEPT] += whole[gap, 1]
        else:
            number = rules.dropped(x, k3, d, A, band, into.rules[r])
            if number > ZERO:
                _by_sequence(tokens, plan.per_token, begin, sequence, x, A, band, number, out.dropped[r], into.rules[r])
                if len(out.kept):
                    rules.kept(x, A, band, out.kept[r, begin : begin + n])
        if plan.joint and anchor >= 0:
            other, band, there = _score(bounds, r, anchor, n, block.scores, seen, block.sides[1])
            if not (inside and there):
                into.differing[r] += rules.differing(x, other, A, band)


@njit(**STAGES)
def _score(bounds: Any, r: Any, gap: Any, n: Any, scores: Any, seen: Any, sides: Any) -> Any:
    """What a rule compares on a gap, its band, and whether all of the block is known to be within it."""
    first, last = bounds.ends[r], bounds.ends[r + 1]
    inside = True
    for k in range(first, last):
        score = bounds.score[k]
        inside &= seen[score, gap, 0] >= bounds.low[k] and seen[score, gap, 1] <= bounds.high[k]
    if last == first + 1:
        score, low, high = scores[bounds.score[first], gap, :n], bounds.low[first], bounds.high[first]
        return score, (low, high, bounds.low_sign[r], bounds.high_sign[r]), inside
    for k in range(first, last):
        score = scores[bounds.score[k], gap, :n]
        rules.sides(score, bounds.low[k], bounds.high[k], k == first, sides)
    return sides[:n], (-HALF, HALF, bounds.low_sign[r], bounds.high_sign[r]), inside


@njit(**STAGES)
def _by_sequence(
    tokens: Any, per_token: Any, begin: Any, sequence: Any, x: Any, A: Any, band: Any, number: Any, out: Any, into: Any
) -> None:  # fmt: skip
    """How many tokens of each sequence a rule drops, `number` in all, and the |A| of all; `sequence` is the first."""
    i, n = 0, len(x)
    while i < n:
        j = min(n, tokens.offsets[sequence + 1] - begin)
        if i < j:
            own = number if j - i == n else rules.dropped_of_sequence(x[i:j], A[i:j], band)
            out[sequence] += np.int32(own)
            if per_token:
                into[MASS_DROPPED] += rules.mass_of_dropped(x[i:j], A[i:j], band)
            else:
                into[MASS_DROPPED] += own * abs(np.float64(A[i]))
            i = j
        sequence += 1
