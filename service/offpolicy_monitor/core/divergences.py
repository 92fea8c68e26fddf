"""Per-token divergences between the numerator and the denominator policy of a gap.

Shapes: [...] of any rank but 0; inputs are finite. `a` and `b` are log-probs of numerator and denominator in nats,
`d = a - b` the log-ratio. Results are float64: there expm1(d) - d keeps nine digits of k3 down to d = 1e-7, where
float32 would need a series.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from offpolicy_monitor.core.checks import DOUBLE, check, check_shape
from offpolicy_monitor.vocabulary import EXPONENT_CLAMP


class Exponentials(NamedTuple):
    """What a token's log-ratio d gives, [...] float64 each; exponents are clamped to +-80."""

    ratio: Tensor  # exp(d)
    excess: Tensor  # exp(d) - 1
    inverse_excess: Tensor  # exp(-d) - 1
    k3: Tensor  # exp(d) - 1 - d
    k3_reverse: Tensor  # exp(-d) - 1 + d


def bounded_ratio(log_ratio: Tensor) -> Tensor:
    """r = exp(clip(d, +-80)), exact where the ratio is far below one: [...] float -> [...] of that dtype.

    Raises ValueError for a single number, TypeError for another dtype.
    """
    check("log_ratio", log_ratio, None)
    return torch.exp(log_ratio.clamp(-EXPONENT_CLAMP, EXPONENT_CLAMP))


def ratio_excess(log_ratio: Tensor) -> Tensor:
    """r - 1 = expm1(clip(d, +-80)), exact where the ratio is near one: [...] float -> [...] of that dtype.

    Raises ValueError for a single number, TypeError for another dtype.
    """
    check("log_ratio", log_ratio, None)
    return torch.expm1(log_ratio.clamp(-EXPONENT_CLAMP, EXPONENT_CLAMP))


def exponentials(log_ratio: Tensor) -> Exponentials:
    """The exponentials of log-ratios d, nats: [...] float32 or float64 -> [...] float64 each.

    k3 is the estimator of KL(denominator || numerator) of low variance, never negative for |d| <= 80. Raises TypeError
    for another dtype. Source: Schulman, http://joschu.net/blog/kl-approx.html
    """
    check("log_ratio", log_ratio, None)
    d = log_ratio.double()
    clipped = d.clamp(-EXPONENT_CLAMP, EXPONENT_CLAMP)
    excess, inverse_excess = torch.expm1(clipped), torch.expm1(-clipped)
    return Exponentials(torch.exp(clipped), excess, inverse_excess, excess - d, inverse_excess + d)


def k3_of(log_ratio: Tensor) -> Tensor:
    """k3 = expm1(clip(d, +-80)) - d of log-ratios, nats: [...] float -> [...] float64. Raises as `exponentials`."""
    return exponentials(log_ratio).k3


def js_terms(log_ratio_abs: Tensor, shrink: Tensor) -> Tensor:
    """The Jensen-Shannon estimate of a token, 0.5 k3(a - m) + 0.5 k3(b - m) with m = log((e^a + e^b) / 2), nats.

    The exponentials of the two halves cancel and leave log cosh(d / 2) = |d| / 2 + log1p(expm1(-|d|) / 2). |d| [...]
    float and expm1(-|d|) [...] float64 -> [...] float64; not bounded by ln 2. Raises ValueError for unequal shapes,
    TypeError for another dtype. Source: NeMo-RL's js_divergence_error, https://github.com/NVIDIA-NeMo/RL
    """
    check("log_ratio_abs", log_ratio_abs, None)
    check("shrink", shrink, None, DOUBLE)
    check_shape("shrink", shrink, *log_ratio_abs.shape)
    return torch.log1p(shrink * 0.5).add(log_ratio_abs, alpha=0.5)


def probability(log_prob: Tensor) -> Tensor:
    """exp(log-prob): [...] float -> [...] float64.

    A positive log-prob is no probability, but stays in; it is clamped at 80 like every exponent. Raises TypeError for
    another dtype.
    """
    check("log_prob", log_prob, None)
    return torch.exp(log_prob.double().clamp(max=EXPONENT_CLAMP))


def bernoulli(log_prob: Tensor) -> Tensor:
    """p, 1 - p, log p and log(1 - p) of log-probs, nats; one above 0 is read as 0: [...] float -> [4, ...] float64.

    1 - p = -expm1(log p), without an epsilon. Raises TypeError for another dtype.
    """
    check("log_prob", log_prob, None)
    log = log_prob.double().clamp(max=0.0)
    rest = -torch.expm1(log)
    return torch.stack([torch.exp(log), rest, log, torch.log(rest)])


def binary_kls(q: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
    """KL between Bernoulli(q) and Bernoulli(p), and the other way round, nats: [4, ...] twice -> two [...], float64.

    KL(q || p) = q log(q / p) + (1-q) log((1-q) / (1-p)). A zero complement of p gives +inf, unless q's is zero too: 0
    times what is infinite is NaN, which is left out of the sum. In float64, because the two terms cancel for near
    policies. q, p: as `bernoulli` gives them. Raises ValueError for other shapes, TypeError for another dtype. Source:
    DPPO, https://arxiv.org/abs/2602.04879
    """
    check("q", q, None, DOUBLE)
    check("p", p, None, DOUBLE)
    check_shape("q", q, 4, *q.shape[1:])
    check_shape("p", p, *q.shape)
    logs = q.narrow(0, 2, 2) - p.narrow(0, 2, 2)
    forward, backward = (torch.nansum(side.narrow(0, 0, 2) * logs, 0) for side in (q, p))
    return forward, -backward
