"""A gap on what a truncated sampler chose among: log-probs less the log of the mass of that support.

Shapes: G gaps, T tokens. All of it is float64, as what is compared with it (core.rescored).
"""

from typing import Final

import torch
from torch import Tensor

from offpolicy_monitor.core.checks import DOUBLE, MARKS, check
from offpolicy_monitor.core.device import where
from offpolicy_monitor.core.divergences import probability
from offpolicy_monitor.core.ragged import total
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
    check("log_prob", log_prob, -1)
    check("log_mass", log_mass, len(log_prob))
    return log_prob.double() if log_mass is None else log_prob.double() - log_mass


def support_sums(above: Tensor, below: Tensor, log_mass: Tensor, valid: Tensor | None = None) -> Tensor:
    """The sums that SUPPORT_SUMS names over valid tokens: of d = above - below, of r = exp(clip(d, +-80)), of the mass.

    above, below: [G, T] float64, what on_support gives of numerators and denominators; log_mass: [G, T] float, of the
    numerators, nats; valid: [G, T] bool, None for all -> [7, G] float64. `outside_tokens` counts `above` beyond 0: no
    token is more probable than all of its support. The denominator is the caller's. Raises ValueError for another rank
    or shape, TypeError for another dtype.
    """
    check("above", above, -1, -1, of=DOUBLE)
    check("below", below, *above.shape, of=DOUBLE)
    check("log_mass", log_mass, *above.shape)
    check("valid", valid, *above.shape, of=MARKS)
    d, mass, outside = above - below, probability(log_mass), above > ROUNDING
    ratio = torch.exp(d.clamp(-EXPONENT_CLAMP, EXPONENT_CLAMP))
    if valid is not None:
        d, ratio, mass = where(valid, torch.stack([d, ratio, mass]), 0.0)
        outside = outside & valid
    return torch.cat([difference_sums(d)[:4], total(torch.stack([ratio, mass, outside]))])
