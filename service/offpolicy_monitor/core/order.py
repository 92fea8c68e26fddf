"""What depends on the order of a sequence's tokens, or of their values: running sums, and values in ascending order.

Shapes: T packed tokens of N non-empty sequences (core.ragged), on any device.
"""

import torch
from torch import Tensor

from offpolicy_monitor.core.checks import check
from offpolicy_monitor.core.device import where
from offpolicy_monitor.core.ragged import Segments


def sums_before(values: Tensor, segments: Segments) -> Tensor:
    """Sum of what comes before each token in its sequence: [..., T] float -> [..., T] float64.

    With each round, of which the longest sequence says how many, a sum reaches twice as far: what is in one sequence
    takes no digits from another, as a difference of sums over all tokens would. Raises ValueError for another length,
    TypeError for another dtype.
    """
    check("values", values, *values.shape[:-1], segments.tokens)
    indices = torch.arange(segments.tokens, device=values.device) - segments.spread(segments.starts)
    found, reach = _later(values.double(), 1, indices), 1
    while reach < int(segments.lengths.max(initial=0)):
        found, reach = found + _later(found, reach, indices), 2 * reach
    return found


def _later(values: Tensor, by: int, indices: Tensor) -> Tensor:
    """Values moved on by so many tokens, 0 where that is out of their sequence; indices [T] of tokens in their own."""
    moved = torch.nn.functional.pad(values, (by, 0)).narrow(-1, 0, len(indices))
    return where(indices >= by, moved, 0.0)


def ascending(values: Tensor, segments: Segments) -> Tensor:
    """Each sequence's values in ascending order: [T] float -> [T], the same dtype.

    Raises ValueError for another rank or length, TypeError for another dtype.
    """
    check("values", values, segments.tokens)
    ordered = torch.argsort(values)
    return values.take(ordered.take(torch.argsort(segments.owners.take(ordered), stable=True)))
