"""What decisions add up to: what rules would drop or reweight, and where two of them differ.

Shapes: T tokens, N sequences, R rules in the order of core.corrections.Decided: those on tokens, then those on whole
sequences, whose decision stands at each of their tokens: so token figures mean the same for both. Results are sums and
counts, float64, without a denominator. Nothing is decided here.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from offpolicy_monitor.core.checks import DOUBLE, MARKS, check, check_shape
from offpolicy_monitor.core.corrections import Anchor, Decided, Group, clip_weights
from offpolicy_monitor.core.gap import Gaps, chosen
from offpolicy_monitor.core.ragged import total

#: Rows of `drop_sums`. masked_advantage_mass is 0 without advantages.
DROP_SUMS: Final = (
    "masked_tokens",
    "masked_low_tokens",
    "masked_sequences",
    "touched_sequences",
    "k3_kept",
    "k3_masked",
    "log_ratio_square_kept",
    "log_ratio_square_masked",
    "masked_advantage_mass",
)

#: Rows of `weight_sums`, without the maximum.
WEIGHT_SUMS: Final = ("weight", "weight_square", "weight_excess", "weight_excess_square", "truncated_tokens")


def dropped_in_sequences(gaps: Gaps, decided: Decided) -> Tensor:
    """Tokens of each sequence that rules drop, and of them those below the bounds: [2, R, N] float64, R >= 1."""
    parts = []
    for group in decided.groups:
        if group.drops:
            marks = torch.stack([group.marked, group.marks[0]]).narrow(1, 0, len(group.drops))
            of_gaps = chosen(gaps.counts, [placed.gap for placed in group.drops]) if group.whole else None
            parts.append(gaps.segments.sum(marks) if of_gaps is None else marks * of_gaps)
    return torch.cat(parts, 1)


def drop_sums(gaps: Gaps, decided: Decided, dropped: Tensor) -> Tensor:
    """Counts and sums of what is dropped and kept: [len(DROP_SUMS), R] float64, R >= 1.

    dropped: [2, R, N] of `dropped_in_sequences`. Kept sums are added up, since a rule drops the largest values, and
    what is left can be a rounding error of the whole. Raises ValueError for another shape, TypeError for another dtype.
    """
    check("dropped", dropped, 3, DOUBLE)
    check_shape("dropped", dropped, 2, len(decided.drops), gaps.segments.sequences)
    tokens, low = dropped.unbind()
    touched = tokens > 0
    all_of_it = touched & (tokens == chosen(gaps.counts, [placed.gap for placed in decided.drops]))
    counts = torch.stack([tokens, low, all_of_it, touched]).sum(-1)
    weighed = torch.cat([_weighed(gaps, group) for group in decided.groups if group.drops])
    (k3, square, mass), (k3_kept, square_kept, _) = weighed.permute(1, 2, 0).unbind()
    return torch.cat([counts, torch.stack([k3_kept, k3, square_kept, square, mass])])


def _weighed(gaps: Gaps, group: Group) -> Tensor:
    """Sums of k3, d^2 and |A| over what is dropped, and over what is kept: [drops, 2, 3] float64."""
    values = gaps.sequence_weights if group.whole else gaps.token_weights
    return split_sums(group.dropped, values, [placed.gap for placed in group.drops])


def split_sums(marks: Tensor, values: Tensor, gaps: Sequence[int]) -> Tensor:
    """Sums of K values where R marks are, and where they are not: [R, n] bool, [G, K, n] float -> [R, 2, K] float64.

    gaps: which of G the values of each mark are. On the CPU what is not marked is all less what is, or added up anew
    where that difference would cancel: a rule marks few tokens of a healthy run. Elsewhere one product of matrices adds
    up both. Raises ValueError for another rank or length, TypeError for another dtype.
    """
    check("marks", marks, 2, MARKS)
    check("values", values, 3)
    check_shape("marks", marks, len(gaps), values.shape[2])
    if values.device.type == "cpu":
        wholes = values.numpy().sum(2, dtype=np.float64)
        pairs = zip(marks.numpy(), gaps, strict=True)
        return torch.from_numpy(np.stack([_split(mark, values.numpy()[gap], wholes[gap]) for mark, gap in pairs]))
    columns = values.flatten(0, 1).double().clamp(max=torch.finfo(torch.float64).max)  # 0 times infinity is NaN
    sums = (torch.stack([marks, torch.bitwise_not(marks)], 1).double() @ columns.T).view(
        len(gaps), 2, *values.shape[:2]
    )
    return torch.stack([sums[rule].select(1, gap) for rule, gap in enumerate(gaps)])


def _split(marks: "NDArray[np.bool_]", values: "NDArray[Any]", whole: "NDArray[np.float64]") -> "NDArray[np.float64]":
    marked = values.take(np.flatnonzero(marks), 1).sum(1, dtype=np.float64)
    if ((marked > 0.5 * whole) | np.isinf(whole)).any():
        return np.stack([marked, values.take(np.flatnonzero(~marks), 1).sum(1, dtype=np.float64)])
    return np.stack([marked, whole - marked])


def weight_sums(gaps: Gaps, decided: Decided) -> tuple[Tensor, Tensor]:
    """Sums of the weights of rules that reweight, over tokens, [len(WEIGHT_SUMS), R], and their maxima [R], float64.

    At least one rule. Squares in float64, since a weight without an upper bound may be as large as exp(80).
    """
    found = [_weights(gaps, group) for group in decided.groups if group.clips]
    sums, most = (torch.cat(part, -1) for part in zip(*found, strict=True))
    return sums, most


def _weights(gaps: Gaps, group: Group) -> tuple[Tensor, Tensor]:
    gap_indices = [placed.gap for placed in group.clips]
    weights = clip_weights(gaps, group)
    truncated = group.marked.narrow(0, len(group.drops), len(gap_indices))
    if gaps.valid is not None:
        weights = torch.where(chosen(gaps.filled if group.whole else gaps.valid, gap_indices), weights, 0.0)
    counts = chosen(gaps.counts, gap_indices) if group.whole else None
    counted = weights if counts is None else weights * counts
    (weight, excess), (square, excess_square) = total(counted), torch.linalg.vecdot(counted, weights)
    truncations = total(truncated if counts is None else truncated * counts)
    return torch.stack([weight, square, excess, excess_square, truncations]), weights[0].amax(-1)


def differing(gaps: Gaps, decided: Decided) -> tuple[tuple[int, ...], Tensor]:
    """The rows of rules by another anchor, and on how many tokens each decides otherwise there: [R] float64, R >= 1."""
    rows: list[int] = []
    counts = []
    for group in decided.groups:
        by = {(placed.row, placed.anchor): number for number, placed in enumerate(group.rules)}
        there = [placed for placed in group.rules if placed.anchor is Anchor.THERE]
        if there:
            here = [by.get((placed.row, Anchor.HERE), by[placed.row, Anchor.OWN]) for placed in there]
            moved = group.marked.narrow(0, by[there[0].row, Anchor.THERE], len(there))
            apart = chosen(group.marked, here) != moved
            rows += [placed.row for placed in there]
            counts.append(total(apart * chosen(gaps.counts, [p.gap for p in there]) if group.whole else apart))
    return tuple(rows), torch.cat(counts)
