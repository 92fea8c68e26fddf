"""Rules that look ahead: what decides about a token depends on its whole sequence, or on the whole request.

The pass has counted everything already, so these look at the tokens again. First each token gets its score, then what
is beyond a bound is dropped. Everything that is compared is float64. Formulas and sources: core.outward and
core.second_moment. Shapes: T tokens of S sequences of a gap, log-probs `a` over `b`.
"""

from typing import Any, Final

import numpy as np
from numba import njit

from offpolicy_monitor.fused import second_moment
from offpolicy_monitor.fused.arrays import DENOMINATOR, NUMERATOR, SQUARE_KEPT
from offpolicy_monitor.fused.token import CLAMP, WITHIN
from offpolicy_monitor.methods.curve import OUTWARD_SCORES
from offpolicy_monitor.vocabulary import DRIFT_QUANTILE

#: What a token's score is: |d|, or one of OUTWARD_SCORES; and whether the bound on it is of the request's mean square.
MAGNITUDE: Final = 0
OUTWARD, DISTANCE, DRIFT = range(1, 1 + len(OUTWARD_SCORES))
#: The columns of Rows.ahead: a rule, its score, its threshold, whether that is of the mean square, and what the score
#: depends on.
RULE, SCORE, THRESHOLD, CUTS, GIVEN = range(5)
COLUMNS: Final = GIVEN + 3

_CLAMP = float(CLAMP)
_SHARE = DRIFT_QUANTILE


@njit(**WITHIN)
def decide(tokens: Any, plan: Any, gaps: Any, ahead: Any, rules: Any, left: Any) -> None:
    """What each of these rules [n, COLUMNS] drops, into `rules` and `left`, as if the pass had found it; `gaps` are
    those of all rules on tokens."""
    scores = np.zeros(0)
    for k in range(len(ahead)):
        r, threshold = int(ahead[k, RULE]), ahead[k, THRESHOLD]
        score, cuts, gap = int(ahead[k, SCORE]), ahead[k, CUTS] > 0, gaps[r]
        if not plan.gaps[gap]:
            continue
        if score == MAGNITUDE and rules[r, SQUARE_KEPT] <= threshold * tokens.offsets[-1] * (1 - 1e-6):
            continue
        if len(scores) == 0:
            scores = np.empty(tokens.offsets[-1])
        fill(tokens, plan.per_token, gap, score, ahead[k, GIVEN:], scores)
        value, ties = second_moment.cut(scores, threshold, score != MAGNITUDE) if cuts else (threshold, 0)
        kept = left.kept[r] if len(left.kept) else np.zeros(0, np.uint8)
        a, b = tokens.logprobs[NUMERATOR[gap]], tokens.logprobs[DENOMINATOR[gap]]
        rules[r] = second_moment.drop(
            a, b, tokens.offsets, tokens.advantages, plan.per_token, scores, value, ties, left.dropped[r], kept
        )


@njit(**WITHIN)
def fill(tokens: Any, per_token: Any, gap: Any, score: Any, given: Any, out: Any) -> None:
    """The score of each token: out [T]."""
    a, b = tokens.logprobs[NUMERATOR[gap]], tokens.logprobs[DENOMINATOR[gap]]
    offsets, moved = tokens.offsets, np.zeros(0)
    if score == DRIFT:
        moved = np.empty(offsets[-1])
    for s in range(len(offsets) - 1):
        first, last = offsets[s], offsets[s + 1]
        if score == DISTANCE:
            out[first:last] = _distance(a, b, first, last)
        elif score == DRIFT:
            _drift(a, b, first, last, given, moved, out)
        else:
            for t in range(first, last):
                out[t] = abs(a[t] - b[t])
        if score != MAGNITUDE:
            for t in range(first, last):
                d, A = a[t] - b[t], tokens.advantages[t if per_token else s]
                if not ((d > 0 and A > 0) or (d < 0 and A < 0)):
                    out[t] = 0.0


@njit(**WITHIN)
def _distance(a: Any, b: Any, first: Any, last: Any) -> Any:
    """Mean |r - 1| of a sequence."""
    total = 0.0
    for t in range(first, last):
        total += abs(np.expm1(min(max(np.float64(a[t] - b[t]), -_CLAMP), _CLAMP)))
    return total / max(last - first, 1)


@njit(**WITHIN)
def _drift(a: Any, b: Any, first: Any, last: Any, given: Any, moved: Any, out: Any) -> None:
    """max(Z, Z + S - b W) of each token of a sequence; `moved` [T] is room for |p - q|."""
    least, most, last_weight = given[0], given[1], given[2]
    n = last - first
    for t in range(first, last):
        moved[t] = abs(np.exp(min(np.float64(a[t]), _CLAMP)) - np.exp(min(np.float64(b[t]), _CLAMP)))
    allowed = _budget(moved[first:last], least, most)
    spent, weights = 0.0, 0.0
    for t in range(first, last):
        weight = 1 - (1 - last_weight) * ((t - first) / max(n - 1, 1))
        own = weight * moved[t]
        out[t] = max(own, own + spent - allowed * weights)
        spent += own
        weights += weight


@njit(**WITHIN)
def _budget(moved: Any, least: Any, most: Any) -> Any:
    """The quantile of |p - q|, within the budget; sorted only where counting does not tell on which side it is."""
    if len(moved) == 0 or least == most:
        return least
    rank = _SHARE * (len(moved) - 1)
    below = int(np.floor(rank))
    above = min(below + 1, len(moved) - 1)
    small, large = 0, 0
    for x in moved:
        small += x <= least
        large += x >= most
    if small > above:
        return least
    if large >= len(moved) - below:
        return most
    ordered = np.sort(moved)
    found = ordered[below] + (ordered[above] - ordered[below]) * (rank - below)
    return min(max(found, least), most)
