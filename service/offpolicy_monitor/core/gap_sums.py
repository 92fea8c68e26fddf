"""Sums, extremes and counts of one gap over its tokens and sequences: what every figure of the gap is made of.

Shapes: T valid tokens, N non-empty sequences, N >= 1. Results are 0-dim float64 tensors by name, so that a GPU is asked
for them once. Formulas are in the design's signals page and in docs/methods.md; the names are those of summary.gap.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from offpolicy_monitor.core.columns import PROBABILITY_TOTALS, TOTALS, WEIGHT_CLAMP, token_columns
from offpolicy_monitor.core.divergences import EXPONENT_CLAMP
from offpolicy_monitor.core.gap import GapTokens
from offpolicy_monitor.core.ragged import total


def token_sums(gap: GapTokens) -> dict[str, Tensor]:
    """Sums over valid tokens; per-sequence sums that exist anyway are added up instead of passing over the tokens."""
    totals = dict(zip(TOTALS, gap.columns.totals, strict=True))
    exact = gap.segments.tokens - totals.pop("changed_tokens")
    return {
        "log_ratio": gap.sequence_sum.sum(),
        "log_ratio_abs": gap.sequence_abs_sum.sum(),
        "log_ratio_square": gap.sequence_square_sum.sum(),
        "log_ratio_deviation": _deviation(gap),
        "log_ratio_min": gap.sequence_min.amin(),
        "log_ratio_max": gap.sequence_max.amax(),
        "k3": gap.sequence_k3_sum.sum(),
        "multiplicative_excess": gap.sequence_growth_sum.sum(),
        "exact_tokens": exact,
        **totals,
    }


def _deviation(gap: GapTokens) -> Tensor:
    """Sum of (d - mean d)^2, in float64: float32 squares of d lose it where the mean is large beside the spread."""
    mean = gap.sequence_sum.sum() / gap.segments.tokens
    apart = gap.log_ratio.to(torch.float64, copy=True).sub_(mean)
    return torch.dot(apart, apart)


def tiny_probability_sums(gap: GapTokens) -> dict[str, Tensor]:
    """The sums over p and q in float64, for tokens whose probabilities float32 does not hold."""
    columns = token_columns(gap.numerator.double(), gap.denominator.double())
    totals = dict(zip(TOTALS, columns.totals, strict=True))
    return {name: totals[name] for name in PROBABILITY_TOTALS}


def sequence_sums(gap: GapTokens) -> dict[str, Tensor]:
    """Sums over non-empty sequences; L is the mean and D the sum of d over a sequence, g = exp(L)."""
    counts, log_geometric, log_product = gap.segments.counts, gap.sequence_mean, gap.sequence_sum
    return {
        "sequence_k3": (gap.sequence_k3_sum / counts).sum(),
        "sequence_log_ratio_abs": (gap.sequence_abs_sum / counts).sum(),
        "log_geometric": log_geometric.sum(),
        "log_geometric_abs": log_geometric.abs().sum(),
        "log_geometric_min": log_geometric.amin(),
        "log_geometric_max": log_geometric.amax(),
        **_ratio_sums("geometric", log_geometric.clamp(-EXPONENT_CLAMP, EXPONENT_CLAMP)),
        "inverse_geometric": torch.exp(-log_geometric.clamp(-EXPONENT_CLAMP, EXPONENT_CLAMP)).sum(),
        "log_product": log_product.sum(),
        "log_product_min": log_product.amin(),
        "log_product_max": log_product.amax(),
        **_ratio_sums("product", log_product.clamp(-WEIGHT_CLAMP, WEIGHT_CLAMP)),
        **_perplexity_sums("numerator", gap.sequence_numerator_sum / counts),
        **_perplexity_sums("denominator", gap.sequence_denominator_sum / counts),
    }


def _ratio_sums(name: str, log_ratio: Tensor) -> dict[str, Tensor]:
    """Sums of x, x^2, x - 1, (x - 1)^2 for x = exp(log_ratio): the first two serve far below 1, the others near it."""
    ratio, excess = torch.exp(log_ratio), torch.expm1(log_ratio)
    return {
        name: ratio.sum(),
        f"{name}_square": ratio.square().sum(),
        f"{name}_excess": excess.sum(),
        f"{name}_excess_square": excess.square().sum(),
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
