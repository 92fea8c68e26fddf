"""The baseline: off-policy metrics on padded tensors, one eager operation after the other, as trainers log them.

Written from the formulas: `a` are the trainer's and `b` the sampler's log-probs, d = a - b, r = exp(d). What is padding
is multiplied by 0. Shapes: [S, L] float32 throughout; m [S, L] is 1 at tokens.
"""

import torch
from torch import Tensor

EXPONENT_LIMIT = 20.0


def padded_metrics(a: Tensor, b: Tensor, m: Tensor) -> dict[str, float]:
    """Divergences, ratios, effective sample size, chi-square and perplexities; means over tokens or sequences."""
    d = a - b
    r = torch.exp(d.clamp(-EXPONENT_LIMIT, EXPONENT_LIMIT))
    product = torch.exp(((d * m).sum(-1)).clamp(-EXPONENT_LIMIT, EXPONENT_LIMIT))
    figures = {
        "k1": _mean(-d, m),
        "k3": _mean(torch.exp(d) - d - 1, m),
        **_ratio_figures(r, m),
        "chi2_token": _mean(r.square(), m) - 1,
        "chi2_sequence": product.square().mean() - 1,
        **_perplexities(a, b, m),
    }
    return {name: value.item() for name, value in figures.items()}


def _mean(values: Tensor, m: Tensor) -> Tensor:
    return (values * m).sum() / m.sum()


def _ratio_figures(r: Tensor, m: Tensor) -> dict[str, Tensor]:
    normalised = r / _mean(r, m)
    return {
        "ratio_mean": _mean(r, m),
        "ratio_min": r.masked_fill(m == 0, float("inf")).min(),
        "ratio_max": r.masked_fill(m == 0, float("-inf")).max(),
        "ess": 1 / _mean(normalised.square(), m),
    }


def _perplexities(a: Tensor, b: Tensor, m: Tensor) -> dict[str, Tensor]:
    lengths = m.sum(-1).clamp(min=1)
    mean_a, mean_b = (a * m).sum(-1) / lengths, (b * m).sum(-1) / lengths
    difference = mean_b - mean_a
    return {
        "ppl": torch.exp(-mean_a).mean(),
        "log_ppl": -mean_a.mean(),
        "rollout_ppl": torch.exp(-mean_b).mean(),
        "rollout_log_ppl": -mean_b.mean(),
        "log_ppl_diff": difference.mean(),
        "log_ppl_abs_diff": difference.abs().mean(),
        "log_ppl_diff_min": difference.min(),
        "log_ppl_diff_max": difference.max(),
        "ppl_ratio": torch.exp(difference).mean(),
    }
