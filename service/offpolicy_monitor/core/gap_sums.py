"""Sums, extremes and counts of gaps over their tokens and sequences: what every figure of a gap is made of.

Shapes: G gaps, T tokens, N sequences. Results are [G] float64 by name, of gaps without a valid token without meaning.
Formulas and papers are in docs/methods.md; the names are those of summary.gap.
"""

from typing import Final

import torch
from torch import Tensor

from offpolicy_monitor.core.checks import DOUBLE, check, check_shape
from offpolicy_monitor.core.columns import TOTALS
from offpolicy_monitor.core.gap import Gaps
from offpolicy_monitor.vocabulary import EXPONENT_CLAMP, WEIGHT_CLAMP


def token_sums(gaps: Gaps, centres: Tensor) -> dict[str, Tensor]:
    """Sums over valid tokens; per-sequence sums that exist anyway are added up instead of passing over the tokens.

    centres: [G] float64, nats: a d of each gap, of all blocks the same, about which `log_ratio_apart_square` is taken.
    With n tokens none is further than sqrt(n) deviations from the mean, so that the sum of squares about the mean,
    which is this less n (mean - centre)^2, loses at most log10(n) of its 16 digits. Raises ValueError for another
    length, TypeError for another dtype.
    """
    check("centres", centres, 1, DOUBLE)
    check_shape("centres", centres, gaps.number)
    totals = dict(zip(TOTALS, gaps.columns.totals.unbind(), strict=True))
    log_ratio, log_ratio_abs, log_ratio_square, k3, growth, _, _ = gaps.sums.unbind()
    apart = gaps.kept(gaps.columns.log_ratio - centres[:, None])
    return {
        "tokens": gaps.tokens,
        "log_ratio": log_ratio,
        "log_ratio_abs": log_ratio_abs,
        "log_ratio_square": log_ratio_square,
        "log_ratio_apart_square": torch.linalg.vecdot(apart, apart),
        "k3": k3,
        "multiplicative_excess": growth,
        "exact_tokens": gaps.tokens - totals["changed_tokens"],
        **totals,
    }


#: What is summed of sequences, in the order in which `sequence_sums` stacks it.
_MEANS: Final = (
    "sequences", "sequence_k3", "sequence_log_ratio_abs", "log_geometric", "log_geometric_abs", "log_product",
    "log_perplexity_numerator", "log_perplexity_denominator",
)  # fmt: skip
#: Ratios x, and x - 1 of the first two; of those that have a sum of squares.
_RATIOS: Final = (
    "geometric", "product", "inverse_geometric", "perplexity_numerator", "perplexity_denominator",
    "geometric_excess", "product_excess",
)  # fmt: skip
_SQUARED: Final = frozenset({"geometric", "product", "geometric_excess", "product_excess"})


def sequence_sums(gaps: Gaps) -> dict[str, Tensor]:
    """Sums over sequences with a valid token; L is the mean and D the sum of d over a sequence.

    Ratios x are exp(L), exp(clip(D, +-20)), exp(-L) and the perplexities exp(-mean a) and exp(-mean b): sums of x and
    x^2 serve far below 1, those of x - 1 and (x - 1)^2 near it.
    """
    means, product = gaps.sequence_means, gaps.sequence_sum
    less = -means
    logs = torch.stack([means[0], product.clamp(-WEIGHT_CLAMP, WEIGHT_CLAMP), less[0], less[5], less[6]])
    logs = logs.clamp(-EXPONENT_CLAMP, EXPONENT_CLAMP)
    ratios = torch.exp(logs) if gaps.valid is None else torch.where(gaps.filled, torch.exp(logs), 0.0)
    ratios = torch.cat([ratios, torch.expm1(logs.narrow(0, 0, 2))])
    of_means = torch.stack([gaps.filled, means[3], means[1], means[0], means[0].abs(), product, less[5], less[6]])
    sums = torch.cat([of_means, ratios]).sum(-1).unbind()
    squares = zip(_RATIOS, torch.linalg.vecdot(ratios, ratios).unbind(), strict=True)
    return {
        **dict(zip((*_MEANS, *_RATIOS), sums, strict=True)),
        **{f"{name}_square": square for name, square in squares if name in _SQUARED},
    }


def extremes(gaps: Gaps) -> dict[str, dict[str, Tensor]]:
    """{"min": {name: [G]}, "max": {name: [G]}}: over sequences with a valid token; infinite where there are none."""
    names = ("log_ratio", "log_geometric", "log_product", "log_ratio")
    low = high = torch.stack([gaps.sequence_min, gaps.sequence_mean, gaps.sequence_sum, gaps.sequence_max])
    if gaps.valid is not None:
        low, high = torch.where(gaps.filled, low, torch.inf), torch.where(gaps.filled, high, -torch.inf)
    least, most = zip(names, low.amin(-1).unbind(), strict=True), zip(names, high.amax(-1).unbind(), strict=True)
    return {
        "min": {f"{name}_min": values for name, values in list(least)[:-1]},
        "max": {
            **{f"{name}_max": values for name, values in list(most)[1:]},
            "probability_diff_max": gaps.columns.probability_diff_max,
        },
    }


def cross_sums(gaps: Gaps, mismatch: int, staleness: int, product: Tensor) -> dict[str, Tensor]:
    """Second moments over the tokens that are valid for both gaps, which must be the same: m^2, s^2 and m s, 0-dim.

    product: [N] float64: the sum of m s over each sequence. Raises ValueError for another length, TypeError for another
    dtype.
    """
    check("product", product, 1, DOUBLE)
    check_shape("product", product, gaps.segments.sequences)
    squares = gaps.sums.select(0, 2)
    return {
        "tokens": gaps.tokens.select(0, mismatch),
        "mismatch_square": squares.select(0, mismatch),
        "staleness_square": squares.select(0, staleness),
        "mismatch_staleness": product.sum(),
    }
