"""Everything about gaps' tokens that is computed token by token, in one function of two stacks of log-probs.

One pure function without branches on data, so that a compiler can make one pass over the tokens of it; run eagerly it
gives the same figures. Shapes: G gaps, T tokens; `a`, `b` are the finite log-probs of the numerator and the denominator
policy, d = a - b in nats, r = exp(d), p = exp(a), q = exp(b), w = exp(clip(d, +-20)).
"""

import math
from typing import Final, NamedTuple

import torch
from torch import Tensor

from offpolicy_monitor.core.checks import check
from offpolicy_monitor.core.divergences import (
    exponentials,
    indicator_above,
    js_terms,
    probability,
    probability_difference,
)
from offpolicy_monitor.core.ragged import total
from offpolicy_monitor.vocabulary import EXPONENT_CLAMP, WEIGHT_CLAMP

LN2: Final = 0.6931471805599453

#: The names of TokenColumns.totals, in order.
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
)


class TokenColumns(NamedTuple):
    """Columns [G, T] in the dtype of the log-probs, and totals over the tokens [len(TOTALS), G] float64."""

    log_ratio: Tensor  # d
    log_ratio_abs: Tensor
    log_ratio_square: Tensor
    ratio: Tensor  # r, exponent clamped
    excess: Tensor  # r - 1, exponent clamped
    growth: Tensor  # exp|d| - 1
    k3: Tensor
    probability_difference: Tensor  # p - q
    totals: Tensor


def token_columns(a: Tensor, b: Tensor, valid: Tensor | None = None) -> TokenColumns:
    """Derive every column of some gaps from their log-probs, nats.

    a, b: [G, T] of one float dtype, finite, T >= 1; valid: [G, T] bool, or None for all. A token that is not valid has
    a = b, and is in no total. Raises ValueError for another rank or unequal shapes, TypeError for another dtype.
    Source of k3: Schulman, http://joschu.net/blog/kl-approx.html
    """
    check("a", a, 2)
    check("b", b, 2, (a.dtype,))
    if a.shape != b.shape:
        raise ValueError(f"a has shape {tuple(a.shape)}, b {tuple(b.shape)}")
    d = a - b
    magnitude = d.abs()
    ratio, excess, inverse_excess, k3, k3_reverse = exponentials(d)
    shrink, growth = torch.minimum(excess, inverse_excess), torch.maximum(excess, inverse_excess)
    difference = probability_difference(probability(a), probability(b), shrink)
    weight = ratio.clamp(math.exp(-WEIGHT_CLAMP), math.exp(WEIGHT_CLAMP))
    weight_excess = excess.clamp(math.expm1(-WEIGHT_CLAMP), math.expm1(WEIGHT_CLAMP))
    totals = (
        total(k3_reverse),
        total(js_terms(magnitude, shrink)),
        total(_only(valid, ratio)),
        total(excess),
        total(_only(valid, weight)),
        total(_only(valid, weight.square())),
        total(weight_excess),
        total(weight_excess.square()),
        total(indicator_above(magnitude, LN2)),
        total(indicator_above(magnitude, 0.0)),
        total(indicator_above(magnitude, EXPONENT_CLAMP)),
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


def _only(valid: Tensor | None, values: Tensor) -> Tensor:
    """The values of valid tokens, 0 for the others."""
    return values if valid is None else torch.where(valid, values, 0.0)
