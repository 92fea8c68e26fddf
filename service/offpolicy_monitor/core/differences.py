"""Sums over differences of log-probs of the same tokens, where these are in no gap: what was computed once more, and
what a sampler chose among.

Shapes: K log-probs of T tokens, R rows made of them. All of it is float64, in which two parts of a difference add up
to it: float32 would round them apart.
"""

from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

from offpolicy_monitor.core.checks import DOUBLE, MARKS, check
from offpolicy_monitor.core.device import constant, where
from offpolicy_monitor.core.ragged import total
from offpolicy_monitor.vocabulary import EXPONENT_CLAMP

#: What `difference_sums` adds up, in its order.
SUMMED: Final = ("log_ratio", "log_ratio_abs", "log_ratio_square", "k3", "changed_tokens")


def differences(log_probs: Tensor, weights: Sequence[Sequence[int]], valid: Tensor | None = None) -> Tensor:
    """Rows of log-probs that are added and taken off, nats: [K, T] float, finite -> [R, T] float64, 0 if not valid.

    weights: [R, K] of 1, -1 and 0, for one product of matrices, in which a difference of two is rounded once; valid:
    [R, T] bool, or None for all. Raises ValueError for another rank or shape, TypeError for another dtype.
    """
    check("log_probs", log_probs, len(weights[0]), -1)
    check("valid", valid, len(weights), log_probs.shape[1], of=MARKS)
    rows = constant(weights, torch.float64, log_probs.device) @ log_probs.double()
    return rows if valid is None else where(valid, rows, 0.0)


def difference_sums(d: Tensor) -> Tensor:
    """The sums that SUMMED names: d, |d|, d^2, k3 = expm1(clip(d, +-80)) - d, and d that are not 0.

    d: [R, T] float64, nats, 0 where not valid, which adds nothing to any of them -> [5, R] float64. The denominator is
    the caller's. Raises ValueError for another rank, TypeError for another dtype. Source of k3: Schulman,
    http://joschu.net/blog/kl-approx.html
    """
    check("d", d, -1, -1, of=DOUBLE)
    k3 = torch.expm1(d.clamp(-EXPONENT_CLAMP, EXPONENT_CLAMP)) - d
    return total(torch.stack([d, d.abs(), d.square(), k3, d != 0]))


def exponential_sums(logs: Tensor, valid: Tensor | None = None) -> Tensor:
    """Sums of exp(clip(x, +-80)) over valid tokens: [R, T] float64, nats -> [R] float64.

    valid: [R, T] bool, or None for all. Raises ValueError for another rank or shape, TypeError for another dtype.
    """
    check("logs", logs, -1, -1, of=DOUBLE)
    check("valid", valid, *logs.shape, of=MARKS)
    ratios = torch.exp(logs.clamp(-EXPONENT_CLAMP, EXPONENT_CLAMP))
    return total(ratios if valid is None else where(valid, ratios, 0.0))


def tokens_above(logs: Tensor, limits: Sequence[float]) -> Tensor:
    """How many tokens of each row are above its limit of 0 or more, which one that is not valid is not.

    [R, T] float64 and R numbers, nats -> [R] float64. Raises ValueError for another rank or another number of limits,
    TypeError for another dtype.
    """
    check("logs", logs, len(limits), -1, of=DOUBLE)
    return total(logs > constant(limits, torch.float64, logs.device)[:, None])


def products(rows: Tensor) -> Tensor:
    """Sums of the products of any two rows, or of one with itself: [R, T] float64 -> [R, R] float64.

    Raises ValueError for another rank, TypeError for another dtype.
    """
    check("rows", rows, -1, -1, of=DOUBLE)
    return rows @ rows.mT
