"""Sums, extremes and counts of gaps over their tokens and sequences: what every figure of a gap is made of.

Shapes: G gaps, T tokens, N sequences. Results are [G] float64 by name, of gaps without a valid token without meaning.
Formulas are in docs/methods.md; the names are those of summary.gap.
"""

import torch
from torch import Tensor

from offpolicy_monitor.core.columns import TOTALS
from offpolicy_monitor.core.gap import Gaps
from offpolicy_monitor.core.ragged import total
from offpolicy_monitor.vocabulary import EXPONENT_CLAMP, WEIGHT_CLAMP


def token_sums(gaps: Gaps, means: Tensor) -> dict[str, Tensor]:
    """Sums over valid tokens; per-sequence sums that exist anyway are added up instead of passing over the tokens.

    means: [G] float64, nats: the mean d of the whole request, about which the deviation is taken. float32 squares of d
    would lose it where the mean is large beside the spread.
    """
    totals = dict(zip(TOTALS, gaps.columns.totals.unbind(), strict=True))
    log_ratio, log_ratio_abs, log_ratio_square, k3, growth, _, _ = gaps.sequence_sums.sum(-1).unbind()
    apart = gaps.kept(gaps.columns.log_ratio - means[:, None])
    return {
        "tokens": gaps.tokens,
        "log_ratio": log_ratio,
        "log_ratio_abs": log_ratio_abs,
        "log_ratio_square": log_ratio_square,
        "log_ratio_deviation": torch.linalg.vecdot(apart, apart),
        "k3": k3,
        "multiplicative_excess": growth,
        "exact_tokens": gaps.tokens - totals.pop("changed_tokens"),
        **totals,
        **_probability_sums(gaps),
    }


def _probability_sums(gaps: Gaps) -> dict[str, Tensor]:
    """In float64, which holds the probabilities that float32 does not."""
    p, q = gaps.probabilities
    difference = (p - q).abs()
    return {
        "probability_diff": difference.sum(-1),
        "probability_diff_square": torch.linalg.vecdot(difference, difference),
        "p": p.sum(-1),
        "q": q.sum(-1),
        "p_square": torch.linalg.vecdot(p, p),
        "q_square": torch.linalg.vecdot(q, q),
        "p_q": torch.linalg.vecdot(p, q),
    }


def sequence_sums(gaps: Gaps) -> dict[str, Tensor]:
    """Sums over sequences with a valid token; L is the mean and D the sum of d over a sequence, g = exp(L)."""
    log_geometric, log_product = gaps.sequence_mean, gaps.sequence_sum
    bounded = log_geometric.clamp(-EXPONENT_CLAMP, EXPONENT_CLAMP)
    above, below = gaps.sequence_log_probs
    columns = {
        "sequences": gaps.filled.double(),
        "sequence_k3": gaps.mean(gaps.sequence_k3_sum),
        "sequence_log_ratio_abs": gaps.mean(gaps.sequence_abs_sum),
        "log_geometric": log_geometric,
        "log_geometric_abs": log_geometric.abs(),
        **_ratios(gaps, "geometric", bounded),
        "inverse_geometric": _filled(gaps, torch.exp(-bounded)),
        "log_product": log_product,
        **_ratios(gaps, "product", log_product.clamp(-WEIGHT_CLAMP, WEIGHT_CLAMP)),
        "perplexity_numerator": _perplexity(gaps, above),
        "perplexity_denominator": _perplexity(gaps, below),
        "log_perplexity_numerator": -above,
        "log_perplexity_denominator": -below,
    }
    return dict(zip(columns, torch.stack(list(columns.values())).sum(-1).unbind(), strict=True))


def extremes(gaps: Gaps) -> dict[str, dict[str, Tensor]]:
    """{"min": {name: [G]}, "max": {name: [G]}}: over sequences with a valid token; infinite where there are none."""
    lowest = torch.stack([gaps.sequence_min, gaps.sequence_mean, gaps.sequence_sum])
    highest = torch.stack([gaps.sequence_max, gaps.sequence_mean, gaps.sequence_sum])
    names = ("log_ratio", "log_geometric", "log_product")
    least = torch.where(gaps.filled, lowest, torch.inf).amin(-1)
    most = torch.where(gaps.filled, highest, -torch.inf).amax(-1)
    p, q = gaps.probabilities
    return {
        "min": {f"{name}_min": values for name, values in zip(names, least.unbind(), strict=True)},
        "max": {
            **{f"{name}_max": values for name, values in zip(names, most.unbind(), strict=True)},
            "probability_diff_max": (p - q).abs().amax(-1),
        },
    }


def _filled(gaps: Gaps, values: Tensor) -> Tensor:
    """[G, N]: the values of sequences with a valid token, 0 for the others."""
    return values if gaps.valid is None else torch.where(gaps.filled, values, 0.0)


def _ratios(gaps: Gaps, name: str, log_ratio: Tensor) -> dict[str, Tensor]:
    """x, x^2, x - 1, (x - 1)^2 for x = exp(log_ratio): sums of the first two serve far below 1, the others near it."""
    ratio, excess = _filled(gaps, torch.exp(log_ratio)), torch.expm1(log_ratio)
    return {
        name: ratio,
        f"{name}_square": ratio.square(),
        f"{name}_excess": excess,
        f"{name}_excess_square": excess.square(),
    }


def _perplexity(gaps: Gaps, mean_log_prob: Tensor) -> Tensor:
    """exp(-mean log-prob) of each sequence."""
    return _filled(gaps, torch.exp(-mean_log_prob.clamp(-EXPONENT_CLAMP, EXPONENT_CLAMP)))


def cross_sums(gaps: Gaps, mismatch: int, staleness: int) -> dict[str, Tensor]:
    """Second moments over the tokens that are valid for both gaps, which must be the same: m^2, s^2 and m s, 0-dim."""
    product = gaps.columns.log_ratio.select(0, mismatch) * gaps.columns.log_ratio.select(0, staleness)
    squares = gaps.sequence_square_sum.sum(-1)
    return {
        "tokens": gaps.tokens.select(0, mismatch),
        "mismatch_square": squares.select(0, mismatch),
        "staleness_square": squares.select(0, staleness),
        "mismatch_staleness": total(product),
    }
