"""Differences of log-probs of the same tokens, where these are in no gap: of what was computed once more, and of what a
sampler chose among. And what is summed of them, token by token.

Shapes: K log-probs of T tokens, R rows made of them. All of it is float64, in which two parts of a difference add up
to it: float32 would round them apart.
"""

from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

from offpolicy_monitor.core.checks import DOUBLE, MARKS, check
from offpolicy_monitor.core.device import constant, where
from offpolicy_monitor.vocabulary import EXPONENT_CLAMP

#: What `difference_terms` gives, in its order.
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


def difference_terms(d: Tensor) -> tuple[Tensor, ...]:
    """What SUMMED names of each token: d, |d|, d^2, k3 = expm1(clip(d, +-80)) - d, and whether d is not 0.

    d: [R, T] float64, nats, 0 where not valid, as all of them are there -> [R, T] float64 each, the last bool. Raises
    ValueError for another rank, TypeError for another dtype. Source of k3: Schulman,
    http://joschu.net/blog/kl-approx.html
    """
    check("d", d, -1, -1, of=DOUBLE)
    k3 = torch.expm1(d.clamp(-EXPONENT_CLAMP, EXPONENT_CLAMP)) - d
    return d, d.abs(), d.square(), k3, d != 0


def exponentials_of(logs: Tensor, valid: Tensor | None = None) -> Tensor:
    """exp(clip(x, +-80)) of valid tokens, 0 of others: [R, T] float64, nats -> [R, T] float64.

    valid: [R, T] bool, or None for all. Raises ValueError for another rank or shape, TypeError for another dtype.
    """
    check("logs", logs, -1, -1, of=DOUBLE)
    check("valid", valid, *logs.shape, of=MARKS)
    ratios = torch.exp(logs.clamp(-EXPONENT_CLAMP, EXPONENT_CLAMP))
    return ratios if valid is None else where(valid, ratios, 0.0)


def above(logs: Tensor, limits: Sequence[float]) -> Tensor:
    """Whether tokens are above the limit of their row, of 0 or more, which one that is not valid is not.

    [R, T] float64 and R numbers, nats -> [R, T] bool. Raises ValueError for another rank or another number of limits,
    TypeError for another dtype.
    """
    check("logs", logs, len(limits), -1, of=DOUBLE)
    return logs > constant(limits, torch.float64, logs.device)[:, None]
