"""Everything about a gap's tokens that is computed token by token, in one function of two log-prob columns.

One pure function without branches on data, so that a compiler can make one pass over the tokens of it; run eagerly it
gives the same figures. Shapes: T tokens; `a`, `b` are the finite log-probs of the numerator and the denominator policy,
d = a - b in nats, r = exp(d), p = exp(a), q = exp(b), w = exp(clip(d, +-20)).
"""

import math
from typing import Final, NamedTuple

import torch
from torch import Tensor

from offpolicy_monitor.core.divergences import (
    EXPONENT_CLAMP,
    exponentials,
    indicator_above,
    js_terms,
    probability,
    probability_difference,
)
from offpolicy_monitor.core.ragged import total

LN2: Final = 0.6931471805599453

#: The clamp that defines chi2 and ess: w = exp(clip(d, +-20)). It is part of the definition and is not counted.
WEIGHT_CLAMP: Final = 20.0

#: The names of TokenColumns.totals, in order. Those in *_max are maxima, the others sums.
TOTALS: Final = (
    "k3_reverse",
    "js",
    "ratio",
    "ratio_excess",
    "weight",
    "weight_square",
    "weight_excess",
    "weight_excess_square",
    "tail_tokens",
    "changed_tokens",
    "clamped_tokens",
    "probability_diff",
    "probability_diff_square",
    "probability_diff_max",
    "p",
    "q",
    "p_square",
    "q_square",
    "p_q",
)

#: Of those, the ones that are made of p and q alone.
PROBABILITY_TOTALS: Final = TOTALS[TOTALS.index("probability_diff") :]


class TokenColumns(NamedTuple):
    """Columns [T] in the dtype of the log-probs, and totals over the tokens [len(TOTALS)] float64."""

    log_ratio: Tensor  # d
    log_ratio_abs: Tensor
    log_ratio_square: Tensor
    ratio: Tensor  # r, exponent clamped
    excess: Tensor  # r - 1, exponent clamped
    growth: Tensor  # exp|d| - 1
    k3: Tensor
    probability_difference: Tensor  # p - q
    totals: Tensor


def token_columns(a: Tensor, b: Tensor) -> TokenColumns:
    """Derive every column of a gap: [T], [T] of one float dtype, T >= 1 -> TokenColumns."""
    d = a - b
    magnitude = d.abs()
    ratio, excess, inverse_excess, k3, k3_reverse = exponentials(d)
    shrink, growth = torch.minimum(excess, inverse_excess), torch.maximum(excess, inverse_excess)
    p, q = probability(a), probability(b)
    difference = probability_difference(p, q, shrink)
    weight = ratio.clamp(math.exp(-WEIGHT_CLAMP), math.exp(WEIGHT_CLAMP))
    weight_excess = excess.clamp(math.expm1(-WEIGHT_CLAMP), math.expm1(WEIGHT_CLAMP))
    p64, q64, difference64 = p.double(), q.double(), difference.double()
    totals = (
        total(k3_reverse),
        total(js_terms(magnitude, shrink)),
        total(ratio),
        total(excess),
        total(weight),
        total(weight.square()),
        total(weight_excess),
        total(weight_excess.square()),
        total(indicator_above(magnitude, LN2)),
        total(indicator_above(magnitude, 0.0)),
        total(indicator_above(magnitude, EXPONENT_CLAMP)),
        difference64.sum(),
        difference64.square().sum(),
        difference.amax().double(),
        p64.sum(),
        q64.sum(),
        p64.square().sum(),
        q64.square().sum(),
        (p64 * q64).sum(),
    )
    return TokenColumns(
        d,
        magnitude,
        d.square(),
        ratio,
        excess,
        growth,
        k3,
        torch.copysign(difference, d),
        torch.stack(totals),
    )
