"""What every figure of a gap is made of: sums over its tokens, terms of its sequences that add up, and extremes.

Shapes: G gaps, T tokens, N sequences. Sums and extremes are [G] float64 by name, of gaps without a valid token without
meaning; terms are [G, N], 0 for a sequence without a valid token, and a sum over N away from a gap's. Formulas and
papers are in docs/methods.md; the names are those of summary.gap.
"""

from typing import Final

import torch
from torch import Tensor

from offpolicy_monitor.core.checks import DOUBLE, check, check_shape
from offpolicy_monitor.core.columns import TOTALS
from offpolicy_monitor.core.constants import constant
from offpolicy_monitor.core.gap import Gaps
from offpolicy_monitor.vocabulary import EXPONENT_CLAMP, WEIGHT_CLAMP


def token_sums(gaps: Gaps, centres: Tensor) -> dict[str, Tensor]:
    """Sums over valid tokens, [G] each: those that no sequence needs.

    centres: [G] float64, nats: a d of each gap, of all blocks the same, about which `log_ratio_apart_square` is taken.
    With n tokens none is further than sqrt(n) deviations from the mean, so that the sum of squares about the mean,
    which is this less n (mean - centre)^2, loses at most log10(n) of its 16 digits. Raises ValueError for another
    length, TypeError for another dtype.
    """
    check("centres", centres, 1, DOUBLE)
    check_shape("centres", centres, gaps.number)
    apart = gaps.kept(gaps.columns.log_ratio - centres[:, None])
    totals = dict(zip(TOTALS, gaps.columns.totals.unbind(), strict=True))
    return {"log_ratio_apart_square": torch.linalg.vecdot(apart, apart), **totals}


#: What `Gaps.sequence_sums` and `Gaps.sequence_means` hold of d, |d|, d^2, k3 and exp|d| - 1, in their order.
_SUMS: Final = ("log_ratio", "log_ratio_abs", "log_ratio_square", "k3", "multiplicative_excess")

#: Where the exponents of its ratios are clipped: L, D, -L, -mean a and -mean b.
_CLAMPS: Final = (EXPONENT_CLAMP, WEIGHT_CLAMP, EXPONENT_CLAMP, EXPONENT_CLAMP, EXPONENT_CLAMP)


def sequence_terms(gaps: Gaps) -> dict[str, Tensor]:
    """What each sequence with a valid token adds to sums of its gap, [G, N] each; L is the mean and D the sum of d.

    Ratios x are exp(L), exp(clip(D, +-20)), exp(-L) and the perplexities exp(-mean a) and exp(-mean b): sums of x and
    x^2 serve far below 1, those of x - 1 and (x - 1)^2 near it.
    """
    means, product = gaps.sequence_means, gaps.sequence_sum
    less = -means
    low, high = constant([[-clamp for clamp in _CLAMPS], _CLAMPS], torch.float64, product.device)[:, :, None, None]
    logs = torch.stack([means[0], product, less[0], less[5], less[6]]).clamp(low, high)
    ratios, excess = gaps.of_filled(torch.exp(logs)), torch.expm1(logs[:2])
    squares, excess_squares = ratios[:2].square(), excess.square()
    return {
        "tokens": gaps.counts,
        **dict(zip(_SUMS, gaps.sequence_sums, strict=False)),
        "sequences": gaps.filled,
        "sequence_k3": means[3],
        "sequence_log_ratio_abs": means[1],
        "log_geometric": means[0],
        "log_geometric_abs": means[0].abs(),
        "log_product": product,
        "log_perplexity_numerator": less[5],
        "log_perplexity_denominator": less[6],
        "geometric": ratios[0],
        "geometric_square": squares[0],
        "geometric_excess": excess[0],
        "geometric_excess_square": excess_squares[0],
        "product": ratios[1],
        "product_square": squares[1],
        "product_excess": excess[1],
        "product_excess_square": excess_squares[1],
        "inverse_geometric": ratios[2],
        "perplexity_numerator": ratios[3],
        "perplexity_denominator": ratios[4],
    }


def extremes(gaps: Gaps) -> dict[str, dict[str, Tensor]]:
    """{"min": {name: [G]}, "max": {name: [G]}}: over sequences with a valid token. Where there are none these are
    infinite, and |p - q| is 0.
    """
    ends = (gaps.sequence_min, gaps.sequence_max, gaps.sequence_mean, gaps.sequence_sum, gaps.sequence_difference_max)
    low = high = torch.stack(ends)
    if gaps.valid is not None:
        low, high = torch.where(gaps.filled, low, torch.inf), torch.where(gaps.filled, high, -torch.inf)
    least, most = low.amin(-1), high.amax(-1)
    return {
        "min": {"log_ratio_min": least[0], "log_geometric_min": least[2], "log_product_min": least[3]},
        "max": {
            "log_ratio_max": most[1],
            "log_geometric_max": most[2],
            "log_product_max": most[3],
            "probability_diff_max": most[4] if gaps.valid is None else most[4].clamp(min=0.0),
        },
    }


def cross_terms(gaps: Gaps, mismatch: int, staleness: int, product: Tensor) -> dict[str, Tensor]:
    """Second moments over the tokens that are valid for both gaps, which must be the same: m^2, s^2 and m s, [N] each.

    product: [N] float64: the sum of m s over each sequence. Raises ValueError for another length, TypeError for another
    dtype.
    """
    check("product", product, 1, DOUBLE)
    check_shape("product", product, gaps.segments.sequences)
    return {
        "tokens": gaps.counts.select(0, mismatch),
        "mismatch_square": gaps.sequence_square_sum.select(0, mismatch),
        "staleness_square": gaps.sequence_square_sum.select(0, staleness),
        "mismatch_staleness": product,
    }
