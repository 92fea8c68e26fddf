"""Everything about gaps' tokens that is computed token by token, in one function of their log-probs.

One pure function without branches on data, so that a compiler can make one pass over the tokens of it; run eagerly it
gives the same figures. Shapes: G gaps, T tokens; `a`, `b` are the finite log-probs of the numerator and the denominator
policy, d = a - b in nats, r = exp(d), p = exp(a), q = exp(b), w = exp(clip(d, +-20)).
"""

import math
from collections.abc import Mapping
from typing import Final, NamedTuple

import torch
from torch import Tensor

from offpolicy_monitor.core.checks import DOUBLE, MARKS, check
from offpolicy_monitor.core.device import constant, where
from offpolicy_monitor.core.divergences import exponentials, js_terms, probability
from offpolicy_monitor.core.ragged import total
from offpolicy_monitor.vocabulary import EXPONENT_CLAMP, WEIGHT_CLAMP

LN2: Final = 0.6931471805599453


class TokenColumns(NamedTuple):
    """Columns [G, T], the first three in the dtype of the log-probs, the others and what they add up to float64."""

    log_ratio: Tensor  # d
    log_ratio_abs: Tensor
    log_ratio_square: Tensor
    ratio: Tensor  # r, exponent clamped; 0 where not valid
    excess: Tensor  # r - 1, exponent clamped
    growth: Tensor  # exp|d| - 1
    k3: Tensor
    probability_difference: Tensor  # p - q
    probability_difference_abs: Tensor
    totals: Mapping[str, Tensor]  # [G] each: sums of these and of others, and of squares of some, by name


def token_columns(sides: Tensor, valid: Tensor | None = None, centres: Tensor | None = None) -> TokenColumns:
    """Derive every column of some gaps from their log-probs, nats.

    sides: [2, G, T] float32 or float64, a and b, finite, T >= 1; valid: [G, T] bool, or None for all. A token that is
    not valid has a = b, and is in no total; totals have no denominator. What is between the log-probs and a column is
    float64.
    centres: [G] float64, nats, or None for 0: a d of each gap, of all blocks the same, about which
    `log_ratio_apart_square` is taken. With n tokens none is further than sqrt(n) deviations from the mean, so that the
    sum of squares about the mean, which is this less n (mean - centre)^2, loses at most log10(n) of its 16 digits.
    Raises ValueError for another rank or unequal shapes, TypeError for another dtype.
    Source of k3: Schulman, http://joschu.net/blog/kl-approx.html
    """
    check("sides", sides, 2, -1, -1)
    check("valid", valid, *sides.shape[1:], of=MARKS)
    check("centres", centres, sides.shape[1], of=DOUBLE)
    a, b = sides.unbind()
    d = a - b
    magnitude = d.abs()
    ratio, excess, inverse_excess, k3, k3_reverse = exponentials(d)
    shrink, growth = torch.minimum(excess, inverse_excess), torch.maximum(excess, inverse_excess)
    p, q = probability(sides).unbind()
    difference = p - q
    difference_abs = difference.abs()
    weight = ratio.clamp(math.exp(-WEIGHT_CLAMP), math.exp(WEIGHT_CLAMP))
    apart = d if centres is None else d - centres[:, None]
    if valid is not None:
        ratio, weight, p, q, apart = where(valid, torch.stack([ratio, weight, p, q, apart]), 0.0).unbind()
    beyond = magnitude > constant([LN2, 0.0, EXPONENT_CLAMP], d.dtype, d.device)[:, None, None]
    weight_excess = excess.clamp(math.expm1(-WEIGHT_CLAMP), math.expm1(WEIGHT_CLAMP))
    squared = {
        "weight": weight, "weight_excess": weight_excess, "p": p, "q": q, "probability_diff": difference_abs,
        "log_ratio_apart": apart,
    }  # fmt: skip
    summed = {
        "k3_reverse": k3_reverse, "js": js_terms(magnitude, shrink), "ratio": ratio, "ratio_excess": excess,
        "p_q": p * q, **squared,
    }  # fmt: skip
    stacked = torch.stack(list(summed.values()))
    squares = stacked.narrow(0, len(summed) - len(squared), len(squared)).square()
    sums = dict(zip(("tail_tokens", "changed_tokens", "clamped_tokens"), total(beyond), strict=True))
    sums |= zip(summed, total(stacked), strict=True)
    sums |= {f"{name}_square": added for name, added in zip(squared, total(squares), strict=True)}
    return TokenColumns(d, magnitude, d.square(), ratio, excess, growth, k3, difference, difference_abs, sums)
