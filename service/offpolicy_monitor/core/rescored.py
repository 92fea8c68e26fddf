"""Sums over what log-probs of the same tokens differ by, where one side was computed once more.

Shapes: P differences of T tokens each. All of it is float64, in which two parts of a difference add up to it: float32
would round them apart.
"""

from typing import Final

import torch
from torch import Tensor

from offpolicy_monitor.core.checks import DOUBLE, MARKS, check
from offpolicy_monitor.core.device import where
from offpolicy_monitor.core.ragged import total
from offpolicy_monitor.vocabulary import EXPONENT_CLAMP

#: What `difference_sums` adds up, in its order.
SUMMED: Final = ("log_ratio", "log_ratio_abs", "log_ratio_square", "k3", "changed_tokens")


def difference(above: Tensor, below: Tensor, valid: Tensor | None = None) -> Tensor:
    """d = a - b of valid tokens and 0 of the others, nats: [T] float32 or float64, finite -> [T] float64.

    valid: [T] bool, or None for all. Raises ValueError for another rank or length, TypeError for another dtype.
    """
    check("above", above, -1)
    check("below", below, len(above))
    check("valid", valid, len(above), of=MARKS)
    d = above.double() - below
    return d if valid is None else where(valid, d, 0.0)


def difference_sums(d: Tensor) -> Tensor:
    """The sums that SUMMED names: d, |d|, d^2, k3 = expm1(clip(d, +-80)) - d, and d that are not 0.

    d: [P, T] float64, nats, 0 where not valid, which adds nothing to any of them -> [5, P] float64. The denominator is
    the caller's. Raises ValueError for another rank, TypeError for another dtype. Source of k3: Schulman,
    http://joschu.net/blog/kl-approx.html
    """
    check("d", d, -1, -1, of=DOUBLE)
    k3 = torch.expm1(d.clamp(-EXPONENT_CLAMP, EXPONENT_CLAMP)) - d
    return total(torch.stack([d, d.abs(), d.square(), k3, d != 0]))
