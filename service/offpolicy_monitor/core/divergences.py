"""Per-token divergences between the numerator and the denominator policy of a gap.

Every function takes and gives [...] of one float dtype. `a` and `b` are log-probs of numerator and denominator,
`d = a - b` the log-ratio in nats. Comparisons come as 0/1 floats, ready to be summed or to blend with. Every input is
finite.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import torch
from torch import Tensor

from offpolicy_monitor.vocabulary import EXPONENT_CLAMP

#: Below this |d| the series are used: exp(d) - 1 - d loses its digits to cancellation as d goes to 0.
SERIES_LIMITS: Final = {torch.float32: 1.0, torch.float64: 0.3}


class Exponentials(NamedTuple):
    """What a token's log-ratio d gives, [T] each: r, and its distance from 1 and from 1 + d with all digits near 0."""

    ratio: Tensor  # exp(d)
    excess: Tensor  # exp(d) - 1
    inverse_excess: Tensor  # exp(-d) - 1
    k3: Tensor  # exp(d) - 1 - d
    k3_reverse: Tensor  # exp(-d) - 1 + d


def comparable(threshold: float, values: Tensor) -> float:
    """The threshold, within what the dtype of the values can hold: beyond it, every comparison comes out the same."""
    largest = torch.finfo(values.dtype).max
    return max(-largest, min(largest, threshold))


def indicator_above(values: Tensor, threshold: float) -> Tensor:
    """1.0 where values > threshold, else 0.0."""
    return values.clone().gt_(comparable(threshold, values))


def indicator_below(values: Tensor, threshold: float) -> Tensor:
    """1.0 where values < threshold, else 0.0."""
    return values.clone().lt_(comparable(threshold, values))


def bounded_ratio(log_ratio: Tensor) -> Tensor:
    """r = exp(clip(d, +-80)): exact where the ratio is far below one."""
    return torch.exp(log_ratio.clamp(-EXPONENT_CLAMP, EXPONENT_CLAMP))


def ratio_excess(log_ratio: Tensor) -> Tensor:
    """r - 1 = expm1(clip(d, +-80)): exact where the ratio is close to one."""
    return torch.expm1(log_ratio.clamp(-EXPONENT_CLAMP, EXPONENT_CLAMP))


def exponentials(log_ratio: Tensor) -> Exponentials:
    """The exponentials of a log-ratio [T], exponents clamped to +-80; by series near 0: of float32 for |d| < 1
    (relative error 4e-9), of float64 for |d| < 0.3 (3e-14).

    k3 is Schulman's low-variance KL estimator ("Approximating KL divergence", 2020), and never negative. The series
    serve all four, because a compiled expm1 is no better than exp - 1.
    """
    limit = SERIES_LIMITS[log_ratio.dtype]
    small = indicator_below(log_ratio.abs(), limit)
    x = log_ratio.clamp(-limit, limit)
    square = x * x
    even = square * _series(square, (1 / 2, 1 / 24, 1 / 720, 1 / 40320, 1 / 3628800))
    odd = square * x * _series(square, (1 / 6, 1 / 120, 1 / 5040, 1 / 362880, 1 / 39916800))
    clipped = log_ratio.clamp(-EXPONENT_CLAMP, EXPONENT_CLAMP)
    ratio = torch.exp(clipped)
    excess, inverse_excess = ratio - 1, torch.exp(-clipped) - 1
    return Exponentials(
        ratio,
        torch.lerp(excess, even + odd + x, small),
        torch.lerp(inverse_excess, even - odd - x, small),
        torch.lerp(excess - log_ratio, even + odd, small),
        torch.lerp(inverse_excess + log_ratio, even - odd, small),
    )


def _series(x: Tensor, coefficients: Sequence[float]) -> Tensor:
    """c0 + c1 x + c2 x^2 + ..., innermost first."""
    *rest, before, last = coefficients
    total = x * last + before
    for coefficient in reversed(rest):
        total = total * x + coefficient
    return total


def k3_of(log_ratio: Tensor) -> Tensor:
    """k3 = expm1(clip(d)) - d of any log-ratios."""
    return exponentials(log_ratio).k3


def js_terms(log_ratio_abs: Tensor, shrink: Tensor) -> Tensor:
    """The Jensen-Shannon estimate of a token, 0.5 k3(a - m) + 0.5 k3(b - m) with m = log((e^a + e^b) / 2).

    The exponentials of the two halves cancel and leave log cosh(d / 2) = |d| / 2 + log1p(expm1(-|d|) / 2).
    shrink is expm1(-|d|). Source: NeMo-RL's js_divergence_error, which it equals; not bounded by ln 2.
    """
    limit = SERIES_LIMITS[log_ratio_abs.dtype]
    small = indicator_below(log_ratio_abs, limit)
    square = (log_ratio_abs.clamp(max=limit) * 0.5).square()
    series = square * _series(square, (1 / 2, -1 / 12, 1 / 45, -17 / 2520, 31 / 14175, -691 / 935550))
    return torch.lerp(log_ratio_abs * 0.5 + torch.log1p(shrink * 0.5), series, small)


def probability(log_prob: Tensor) -> Tensor:
    """exp(log-prob). A positive log-prob is no probability, but stays in; it is clamped at 80 like every exponent."""
    return torch.exp(log_prob.clamp(max=EXPONENT_CLAMP))


def probability_difference(p: Tensor, q: Tensor, shrink: Tensor) -> Tensor:
    """|p - q| = max(p, q) * (1 - exp(-|d|)), which keeps its digits where p and q are nearly equal.

    shrink is expm1(-|d|).
    """
    return torch.maximum(p, q) * -shrink


class Bernoulli(NamedTuple):
    """A token's probability against all others, [...] float64 each: log p, p, 1 - p and log(1 - p)."""

    log: Tensor
    p: Tensor
    rest: Tensor
    log_rest: Tensor


def bernoulli(log_prob: Tensor) -> Bernoulli:
    """The distribution of a log-prob [...]; one above 0 is read as 0. 1 - p = -expm1(log p), without an epsilon."""
    log = log_prob.double().clamp(max=0.0)
    rest = -torch.expm1(log)
    return Bernoulli(log, torch.exp(log), rest, torch.log(rest))


def binary_kls(q: Bernoulli, p: Bernoulli) -> tuple[Tensor, Tensor]:
    """KL between Bernoulli(q) and Bernoulli(p), and the other way round, [...] float64 each, nats.

    KL(q || p) = q log(q / p) + (1-q) log((1-q) / (1-p)). A zero complement of p gives +inf, unless q's is zero too. In
    float64, because the two terms cancel for near policies. Source: DPPO, https://arxiv.org/abs/2602.04879
    """
    log, log_rest = q.log - p.log, q.log_rest - p.log_rest
    forward = torch.addcmul(torch.where(q.rest > 0, q.rest * log_rest, 0.0), q.p, log)
    backward = torch.addcmul(torch.where(p.rest > 0, p.rest * log_rest, 0.0), p.p, log)
    return forward, -backward
