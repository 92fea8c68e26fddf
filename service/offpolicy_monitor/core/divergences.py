"""Per-token divergences between the numerator and the denominator policy of a gap.

Shapes: T tokens; every function takes and gives [T] of one float dtype. `a` and `b` are log-probs of numerator and
denominator, `d = a - b` the log-ratio in nats. Comparisons are written as 0/1 floats, which is several times faster
on a CPU than boolean tensors. Invalid tokens were removed before: every input is finite.
"""

from typing import Final, NamedTuple

import torch
from torch import Tensor

#: The argument of an exponential is clamped to +- this; float32 overflows above 88.7. Each act is counted.
EXPONENT_CLAMP: Final = 80.0

#: Below this |d| the series are used: exp(d) - 1 - d loses all digits to cancellation as d goes to 0.
SERIES_LIMIT: Final = 0.1
_JS_SERIES_LIMIT: Final = 0.25


class K3(NamedTuple):
    """k3 of a token in both directions, [T] each, nats, never negative."""

    forward: Tensor  # exp(d) - 1 - d
    reverse: Tensor  # exp(-d) - 1 + d


def indicator_above(values: Tensor, threshold: float) -> Tensor:
    """1.0 where values > threshold, else 0.0."""
    return values.clone().gt_(threshold)


def indicator_below(values: Tensor, threshold: float) -> Tensor:
    """1.0 where values < threshold, else 0.0."""
    return values.clone().lt_(threshold)


def ratio_excess(log_ratio: Tensor) -> Tensor:
    """r - 1 = expm1(clip(d, +-80)): exact where the ratio is close to one."""
    return torch.expm1(log_ratio.clamp(-EXPONENT_CLAMP, EXPONENT_CLAMP))


def k3_terms(log_ratio: Tensor, excess: Tensor, inverse_excess: Tensor) -> K3:
    """k3 = expm1(d) - d and its reverse expm1(-d) + d, by their series for |d| < 0.1 (relative error 4e-9).

    excess is expm1(clip(d)), inverse_excess expm1(-clip(d)). Source: Schulman, "Approximating KL divergence" (2020).
    """
    small = indicator_below(log_ratio.abs(), SERIES_LIMIT)
    x = log_ratio.clamp(-SERIES_LIMIT, SERIES_LIMIT)
    square = x * x
    even = square * (0.5 + square * (1 / 24 + square * (1 / 720)))
    odd = square * x * (1 / 6 + square * (1 / 120 + square * (1 / 5040)))
    forward = torch.lerp(excess - log_ratio, even + odd, small)
    reverse = torch.lerp(inverse_excess + log_ratio, even - odd, small)
    return K3(forward, reverse)


def k3_of(log_ratio: Tensor) -> Tensor:
    """k3 = expm1(clip(d)) - d of any log-ratios."""
    return k3_terms(log_ratio, ratio_excess(log_ratio), ratio_excess(-log_ratio)).forward


def js_terms(log_ratio_abs: Tensor, shrink: Tensor) -> Tensor:
    """The Jensen-Shannon estimate of a token, 0.5 k3(a - m) + 0.5 k3(b - m) with m = log((e^a + e^b) / 2).

    The exponentials of the two halves cancel and leave log cosh(d / 2) = |d| / 2 + log1p(expm1(-|d|) / 2).
    shrink is expm1(-|d|). Source: NeMo-RL's js_divergence_error, which it equals; not bounded by ln 2.
    """
    small = indicator_below(log_ratio_abs, _JS_SERIES_LIMIT)
    square = (log_ratio_abs.clamp(max=_JS_SERIES_LIMIT) * 0.5).square()
    series = square * (0.5 + square * (-1 / 12 + square * (1 / 45 - square * (17 / 2520))))
    return torch.lerp(log_ratio_abs * 0.5 + torch.log1p(shrink * 0.5), series, small)


def probability(log_prob: Tensor) -> Tensor:
    """exp(log-prob). A positive log-prob is no probability, but stays in; it is clamped at 80 like every exponent."""
    return torch.exp(log_prob.clamp(max=EXPONENT_CLAMP))


def probability_difference(p: Tensor, q: Tensor, shrink: Tensor) -> Tensor:
    """|p - q| = max(p, q) * (1 - exp(-|d|)), which keeps its digits where p and q are nearly equal.

    shrink is expm1(-|d|).
    """
    return torch.maximum(p, q) * -shrink


def binary_kl(log_q: Tensor, log_p: Tensor) -> Tensor:
    """KL between Bernoulli(q) and Bernoulli(p): q (log q - log p) + (1-q) (log(1-q) - log(1-p)), nats.

    1 - q = -expm1(log q), without an epsilon: a zero complement of p gives +inf, unless q's is zero too. A log-prob
    above 0 is read as 0. Source: DPPO.
    """
    log_q, log_p = log_q.clamp(max=0.0), log_p.clamp(max=0.0)
    q, q_rest, p_rest = torch.exp(log_q), -torch.expm1(log_q), -torch.expm1(log_p)
    own = q * (log_q - log_p)
    other = torch.where(q_rest > 0, q_rest * (torch.log(q_rest) - torch.log(p_rest)), 0.0)
    return own + other
