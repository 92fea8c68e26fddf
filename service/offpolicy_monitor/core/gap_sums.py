"""What figures of a gap are made of beside totals of its tokens (core.columns): terms of its sequences, and extremes.

Shapes: G gaps, N sequences. Extremes are [G] float64 by name; terms are [G, N], 0 for a sequence without a valid token,
and a sum over N away from a gap's. Formulas and papers are in docs/methods.md; the names are those of summary.gap.
"""

from typing import Final

import torch
from torch import Tensor

from offpolicy_monitor.core.device import constant, where
from offpolicy_monitor.core.gap import Gaps
from offpolicy_monitor.vocabulary import EXPONENT_CLAMP, WEIGHT_CLAMP

#: Ratios of a sequence, exp(L), exp(D), exp(-L), exp(-mean a) and exp(-mean b): the sign of the exponent, its bounds.
_RATIOS: Final = {
    "geometric": (1, -EXPONENT_CLAMP, EXPONENT_CLAMP),
    "product": (1, -WEIGHT_CLAMP, WEIGHT_CLAMP),
    "inverse_geometric": (-1, -EXPONENT_CLAMP, EXPONENT_CLAMP),
    "perplexity_numerator": (-1, -EXPONENT_CLAMP, EXPONENT_CLAMP),
    "perplexity_denominator": (-1, -EXPONENT_CLAMP, EXPONENT_CLAMP),
}
#: Those of which there are squares, and the same less 1: sums of x and x^2 serve far below 1, these near it.
_SQUARED: Final = ("geometric", "product")


def sequence_terms(gaps: Gaps) -> dict[str, Tensor]:
    """What each sequence with a valid token adds to sums of its gap, [G, N] each; L is the mean and D the sum of d."""
    sums, means = gaps.sums, gaps.means
    logs = torch.stack([means.log_ratio, sums.log_ratio, means.log_ratio, means.numerator, means.denominator])
    signs, low, high = constant(list(zip(*_RATIOS.values(), strict=True)), torch.float64, logs.device).unbind()
    logs = logs * signs[:, None, None]
    clipped = logs.clamp(low[:, None, None], high[:, None, None])
    ratios, excess = gaps.of_filled(torch.exp(clipped)), torch.expm1(clipped[: len(_SQUARED)])
    found = {
        "tokens": gaps.counts,
        "sequences": gaps.filled,
        "log_ratio": sums.log_ratio,
        "log_ratio_abs": sums.log_ratio_abs,
        "log_ratio_square": sums.log_ratio_square,
        "k3": sums.k3,
        "multiplicative_excess": sums.growth,
        "sequence_k3": means.k3,
        "sequence_log_ratio_abs": means.log_ratio_abs,
        "log_geometric": means.log_ratio,
        "log_geometric_abs": means.log_ratio.abs(),
        "log_product": sums.log_ratio,
        "log_perplexity_numerator": logs[3],
        "log_perplexity_denominator": logs[4],
        **dict(zip(_RATIOS, ratios, strict=True)),
    }
    squares = {"square": ratios[: len(_SQUARED)].square(), "excess": excess, "excess_square": excess.square()}
    for suffix, values in squares.items():
        found |= {f"{name}_{suffix}": value for name, value in zip(_SQUARED, values, strict=True)}
    return found


def extremes(gaps: Gaps) -> dict[str, dict[str, Tensor]]:
    """{"min": {name: [G]}, "max": {name: [G]}}: over sequences with a valid token, infinite where there are none."""
    ends, mean, product = gaps.extremes["log_ratio"], gaps.means.log_ratio, gaps.sums.log_ratio
    low = high = torch.stack([ends.min, mean, product, ends.max, gaps.extremes["probability_difference_abs"].max])
    if gaps.valid is not None:
        low, high = where(gaps.filled, low, torch.inf), where(gaps.filled, high, -torch.inf)
    low, high = low.amin(-1), high.amax(-1)
    found = {"log_ratio_max": high[3], "log_geometric_max": high[1], "log_product_max": high[2]}
    return {
        "min": {"log_ratio_min": low[0], "log_geometric_min": low[1], "log_product_min": low[2]},
        "max": {**found, "probability_diff_max": high[4]},
    }


def cross_terms(gaps: Gaps) -> dict[str, Tensor]:
    """Second moments of the gaps' two that are crossed, mismatch and staleness: m^2, s^2 and m s, [N] each, none
    without.
    """
    if gaps.crossed is None:
        return {}
    mismatch, staleness = gaps.crossed
    return {
        "tokens": gaps.counts.select(0, mismatch),
        "mismatch_square": gaps.sums.log_ratio_square.select(0, mismatch),
        "staleness_square": gaps.sums.log_ratio_square.select(0, staleness),
        "mismatch_staleness": gaps.product_of_sequences,
    }
