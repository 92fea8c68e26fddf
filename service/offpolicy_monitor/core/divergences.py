"""Per-token divergences between the numerator and the denominator policy of a gap.

Shapes: [...] of any rank but 0; inputs are finite. `a` and `b` are log-probs of numerator and denominator in nats,
`d = a - b` the log-ratio. Results are float64: there expm1(d) - d keeps nine digits of k3 down to d = 1e-7, where
float32 would need a series.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from offpolicy_monitor.core.checks import DOUBLE, check
from offpolicy_monitor.vocabulary import EXPONENT_CLAMP


class Exponentials(NamedTuple):
    """What a token's log-ratio d gives, [...] float64 each; exponents are clamped to +-80."""

    ratio: Tensor  # exp(d)
    excess: Tensor  # exp(d) - 1
    inverse_excess: Tensor  # exp(-d) - 1
    k3: Tensor  # exp(d) - 1 - d, the d that is taken off without a clamp
    k3_reverse: Tensor  # exp(-d) - 1 + d


def ratio_and_excess(log_ratio: Tensor) -> Tensor:
    """r = exp(clip(d, +-80)), with its digits far below one, and r - 1, with its digits near one.

    [...] float -> [2, ...] of that dtype. Raises ValueError for a single number, TypeError for another dtype.
    """
    check("log_ratio", log_ratio)
    clipped = log_ratio.clamp(-EXPONENT_CLAMP, EXPONENT_CLAMP)
    return torch.stack([torch.exp(clipped), torch.expm1(clipped)])


def exponentials(log_ratio: Tensor) -> Exponentials:
    """The exponentials of log-ratios d, nats: [...] float32 or float64 -> [...] float64 each.

    k3 is the estimator of KL(denominator || numerator) of low variance, never negative for |d| <= 80. Raises ValueError
    for a single number, TypeError for another dtype. Source: Schulman, http://joschu.net/blog/kl-approx.html
    """
    check("log_ratio", log_ratio)
    d = log_ratio.double()
    clipped = d.clamp(-EXPONENT_CLAMP, EXPONENT_CLAMP)
    excess, inverse_excess = torch.expm1(clipped), torch.expm1(-clipped)
    return Exponentials(torch.exp(clipped), excess, inverse_excess, excess - d, inverse_excess + d)


def js_terms(log_ratio_abs: Tensor, shrink: Tensor) -> Tensor:
    """The Jensen-Shannon estimate of a token, 0.5 k3(a - m) + 0.5 k3(b - m) with m = log((e^a + e^b) / 2), nats.

    The exponentials of the two halves cancel and leave log cosh(d / 2) = |d| / 2 + log1p(expm1(-|d|) / 2). |d| [...]
    float and expm1(-|d|) [...] float64 -> [...] float64; not bounded by ln 2. Raises ValueError for unequal shapes,
    TypeError for another dtype. Source: NeMo-RL's js_divergence_error, https://github.com/NVIDIA-NeMo/RL
    """
    check("log_ratio_abs", log_ratio_abs)
    check("shrink", shrink, *log_ratio_abs.shape, of=DOUBLE)
    return torch.log1p(shrink * 0.5).add(log_ratio_abs, alpha=0.5)


def probability(log_prob: Tensor) -> Tensor:
    """exp(log-prob): [...] float -> [...] float64.

    A positive log-prob is no probability, but stays in; it is clamped at 80 like every exponent. Raises ValueError for
    a single number, TypeError for another dtype.
    """
    check("log_prob", log_prob)
    return torch.exp(log_prob.double().clamp(max=EXPONENT_CLAMP))


def bernoulli(log_prob: Tensor) -> tuple[Tensor, ...]:
    """p, 1 - p, log p and log(1 - p) of log-probs, nats; one above 0 is read as 0: [...] float -> four [...] float64.

    1 - p = -expm1(log p), without an epsilon. Raises ValueError for a single number, TypeError for another dtype.
    """
    check("log_prob", log_prob)
    log = log_prob.double().clamp(max=0.0)
    rest = -torch.expm1(log)
    return torch.exp(log), rest, log, torch.log(rest)


def binary_kls(sides: Tensor) -> tuple[Tensor, Tensor]:
    """KL between Bernoulli(q) and Bernoulli(p), and the other way round, nats: [4, 2, ...] -> two [...], float64.

    KL(q || p) = q log(q / p) + (1-q) log((1-q) / (1-p)). A zero complement of p gives +inf, unless q's is zero too: 0
    times what is infinite is NaN, which is left out of the sum. In float64, because the two terms cancel for near
    policies. sides: what `bernoulli` gives of q, then of p. Raises ValueError for another shape, TypeError for another
    dtype. Source: DPPO, https://arxiv.org/abs/2602.04879
    """
    check("sides", sides, 4, 2, *sides.shape[2:], of=DOUBLE)
    logs = sides[2:, 0] - sides[2:, 1]
    forward, backward = torch.nansum(sides[:2] * logs[:, None], 0).unbind()
    return forward, -backward
