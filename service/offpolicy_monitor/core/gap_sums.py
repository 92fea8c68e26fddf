"""Sums, extremes and counts of one gap over its tokens and sequences: what every figure of the gap is made of.

Shapes: T valid tokens, N non-empty sequences, N >= 1. Results are 0-dim float64 tensors by name, so that a GPU is asked
for them once. Formulas are in the design's signals page and in docs/methods.md; the names are those of summary.gap.
"""

from collections.abc import Mapping
from typing import Final

import torch
from torch import Tensor

from offpolicy_monitor.core.divergences import EXPONENT_CLAMP, indicator_above, js_terms
from offpolicy_monitor.core.gap import GapTokens
from offpolicy_monitor.core.ragged import total

LN2: Final = 0.6931471805599453

#: The clamp that defines chi2 and ess: w = exp(clip(d, +-20)). It is part of the definition and is not counted.
WEIGHT_CLAMP: Final = 20.0


def token_sums(gap: GapTokens) -> dict[str, Tensor]:
    """Sums over valid tokens; per-sequence sums that exist anyway are added up instead of passing over the tokens."""
    weight = gap.with_clamped(WEIGHT_CLAMP)
    return {
        "log_ratio": gap.sequence_sum.sum(),
        "log_ratio_abs": gap.sequence_abs_sum.sum(),
        "log_ratio_square": gap.sequence_square_sum.sum(),
        "log_ratio_min": gap.sequence_min.amin(),
        "log_ratio_max": gap.sequence_max.amax(),
        "k3": gap.sequence_k3_sum.sum(),
        "k3_reverse": total(gap.k3.reverse),
        "js": total(js_terms(gap.log_ratio_abs, gap.shrink)),
        "ratio_excess": total(gap.excess),
        "multiplicative_excess": gap.sequence_growth_sum.sum(),
        "weight_excess": total(weight),
        "weight_excess_square": total(weight.square()),
        "tail_tokens": total(indicator_above(gap.log_ratio_abs, LN2)),
        "exact_tokens": gap.segments.tokens - total(indicator_above(gap.log_ratio_abs, 0.0)),
        "clamped_tokens": total(indicator_above(gap.log_ratio_abs, EXPONENT_CLAMP)),
        **_probability_sums(gap),
    }


def _probability_sums(gap: GapTokens) -> dict[str, Tensor]:
    difference = gap.probability_difference
    p, q = gap.numerator.probability64, gap.denominator.probability64
    return {
        "probability_diff": total(difference),
        "probability_diff_square": total(difference.square()),
        "probability_diff_max": difference.amax().double(),
        "p": p.sum(),
        "q": q.sum(),
        "p_square": torch.dot(p, p),
        "q_square": torch.dot(q, q),
        "p_q": torch.dot(p, q),
    }


def sequence_sums(gap: GapTokens) -> dict[str, Tensor]:
    """Sums over non-empty sequences; L is the mean and D the sum of d over a sequence, g = exp(L)."""
    counts, log_geometric, log_product = gap.segments.counts, gap.sequence_mean, gap.sequence_sum
    geometric = torch.expm1(log_geometric.clamp(-EXPONENT_CLAMP, EXPONENT_CLAMP))
    product = torch.expm1(log_product.clamp(-WEIGHT_CLAMP, WEIGHT_CLAMP))
    return {
        "sequence_k3": (gap.sequence_k3_sum / counts).sum(),
        "sequence_log_ratio_abs": (gap.sequence_abs_sum / counts).sum(),
        "log_geometric": log_geometric.sum(),
        "log_geometric_abs": log_geometric.abs().sum(),
        "log_geometric_min": log_geometric.amin(),
        "log_geometric_max": log_geometric.amax(),
        "geometric_excess": geometric.sum(),
        "geometric_excess_square": geometric.square().sum(),
        "inverse_geometric": torch.exp(-log_geometric.clamp(-EXPONENT_CLAMP, EXPONENT_CLAMP)).sum(),
        "log_product": log_product.sum(),
        "log_product_min": log_product.amin(),
        "log_product_max": log_product.amax(),
        "product_excess": product.sum(),
        "product_excess_square": product.square().sum(),
        **_perplexity_sums("numerator", gap.sequence_numerator_sum / counts),
        **_perplexity_sums("denominator", gap.sequence_denominator_sum / counts),
    }


def _perplexity_sums(policy: str, mean_log_prob: Tensor) -> dict[str, Tensor]:
    """Sums of exp(-mean log-prob) and of -mean log-prob over sequences."""
    return {
        f"perplexity_{policy}": torch.exp(-mean_log_prob.clamp(-EXPONENT_CLAMP, EXPONENT_CLAMP)).sum(),
        f"log_perplexity_{policy}": -mean_log_prob.sum(),
    }


def cross_sums(mismatch: GapTokens, staleness: GapTokens) -> dict[str, Tensor]:
    """Second moments over tokens valid for both gaps (which must hold the same tokens): m^2, s^2 and m s."""
    if mismatch.segments.tokens != staleness.segments.tokens:
        raise ValueError("cross terms need the two gaps over the same tokens")
    return {
        "mismatch_square": mismatch.sequence_square_sum.sum(),
        "staleness_square": staleness.sequence_square_sum.sum(),
        "mismatch_staleness": total(mismatch.log_ratio * staleness.log_ratio),
    }


def to_floats(tensors: Mapping[str, Tensor]) -> dict[str, float]:
    """Bring 0-dim tensors to the host in one transfer."""
    values = torch.stack([tensor.double() for tensor in tensors.values()]).tolist()
    return dict(zip(tensors, values, strict=True))
