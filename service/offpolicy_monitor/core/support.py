"""A gap on what a truncated sampler chose among: log-probs less the log of the mass of that support.

Shapes: G gaps, T tokens. All of it is float64, as what is compared with it (core.rescored).
"""

from typing import Final

import torch
from torch import Tensor

from offpolicy_monitor.core.checks import DOUBLE, FLOATS, MARKS, check, check_shape
from offpolicy_monitor.core.divergences import probability
from offpolicy_monitor.core.rescored import difference_sums
from offpolicy_monitor.vocabulary import EXPONENT_CLAMP

#: A log-prob above that of its support by no more, in nats, is rounding: bfloat16 has two to three digits.
ROUNDING: Final = 0.01
#: What `support_sums` adds up, in its order.
SUPPORT_SUMS: Final = ("log_ratio", "log_ratio_abs", "log_ratio_square", "k3", "ratio", "mass", "outside_tokens")


def on_support(log_prob: Tensor, log_mass: Tensor | None) -> Tensor:
    """log p(token | support) = log p(token) - log p(support), nats: [T] float32 or float64 each -> [T] float64.

    log_mass: None where the log-prob is of the support as it is. Raises ValueError for another rank or length,
    TypeError for another dtype. Source: sampling distribution replay, DeepSeek-V3.2, https://arxiv.org/abs/2512.02556
    """
    check("log_prob", log_prob, 1)
    if log_mass is None:
        return log_prob.double()
    check("log_mass", log_mass, 1)
    check_shape("log_mass", log_mass, len(log_prob))
    return log_prob.double() - log_mass


def support_sums(above: Tensor, below: Tensor, log_mass: Tensor, valid: Tensor | None = None) -> Tensor:
    """The sums that SUPPORT_SUMS names over valid tokens: of d = above - below, of r = exp(clip(d, +-80)), of the mass.

    above, below: [G, T] float64, what on_support gives of numerators and denominators; log_mass: [G, T] float, of the
    numerators, nats; valid: [G, T] bool, None for all -> [7, G] float64. `outside_tokens` counts `above` beyond 0: no
    token is more probable than all of its support. The denominator is the caller's. Raises ValueError for another rank
    or shape, TypeError for another dtype.
    """
    check("above", above, 2, DOUBLE)
    for name, values, dtypes in (("below", below, DOUBLE), ("log_mass", log_mass, FLOATS), ("valid", valid, MARKS)):
        if values is not None:
            check(name, values, 2, dtypes)
            check_shape(name, values, *above.shape)
    d, outside = above - below, above > ROUNDING
    if valid is not None:
        d, outside = torch.where(valid, d, 0.0), outside & valid
    ratio, mass = torch.exp(d.clamp(-EXPONENT_CLAMP, EXPONENT_CLAMP)), probability(log_mass)
    if valid is not None:
        ratio, mass = torch.where(valid, ratio, 0.0), torch.where(valid, mass, 0.0)
    return torch.cat([difference_sums(d)[:4], torch.stack([ratio.sum(1), mass.sum(1), outside.sum(1)])])
