"""What decisions add up to: what rules would drop or reweight, and where two of them differ.

Shapes: T tokens, N sequences, R rules of a group (core.corrections). A whole sequence's decision stands at each of its
tokens, so token figures mean the same for decisions on tokens and on sequences.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from offpolicy_monitor.core.corrections import Group, sequence_weights, token_weights
from offpolicy_monitor.core.gap import Gaps, chosen
from offpolicy_monitor.core.ragged import total

#: Rows of `drop_sums`. masked_advantage_mass is 0 without advantages.
DROP_SUMS: Final = (
    "masked_tokens",
    "masked_low_tokens",
    "masked_high_tokens",
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


def masked_in_sequences(gaps: Gaps, group: Group, whole: bool) -> Tensor:
    """[drops, N] float64: dropped tokens of each sequence, or 0/1 for rules on whole sequences."""
    return group.dropped.double() if whole else gaps.segments.sum(group.dropped)


def drop_sums(gaps: Gaps, group: Group, masked: Tensor, whole: bool) -> Tensor:
    """Counts and sums of what is dropped and kept: [len(DROP_SUMS), drops] float64.

    masked: [drops, N] of `masked_in_sequences`. Kept sums are added up, since a rule drops the largest values, and what
    is left can be a rounding error of the whole.
    """
    number, places = group.drops, group.gaps[: group.drops]
    counts, low = chosen(gaps.counts, places), group.low.narrow(0, 0, number)
    if whole:
        low = low.double() * counts
        touched, all_of_it, masked = masked, masked, masked * counts
    else:
        low = gaps.segments.sum(low)
        touched, all_of_it = masked > 0, (masked == counts) & (masked > 0)
    tokens, below = masked.sum(-1), low.sum(-1)
    dropped, kept = _weighed(gaps, group, whole)
    (k3_masked, square_masked, mass), (k3_kept, square_kept, _) = dropped.unbind(), kept.unbind()
    return torch.stack(
        [
            tokens,
            below,
            tokens - below,
            total(all_of_it),
            total(touched),
            k3_kept,
            k3_masked,
            square_kept,
            square_masked,
            mass,
        ]
    )


def _weighed(gaps: Gaps, group: Group, whole: bool) -> tuple[Tensor, Tensor]:
    """Sums of k3, d^2 and |A| over what is dropped, and over what is kept: [3, drops] float64 each."""
    values = gaps.sequence_weights if whole else gaps.token_weights
    places = group.gaps[: group.drops]
    order = sorted(range(group.drops), key=places.__getitem__)
    sums = [
        split_sums(chosen(group.dropped, [rule for rule in order if places[rule] == gap]), values[gap])
        for gap in sorted(set(places))
    ]
    found = chosen(torch.cat(sums), [order.index(rule) for rule in range(group.drops)])
    dropped, kept = found.permute(1, 2, 0).unbind()
    return dropped, kept


def split_sums(marks: Tensor, values: Tensor) -> Tensor:
    """Sums of K values where R marks are, and where they are not: [R, n] bool, [K, n] float -> [R, 2, K] float64.

    On the CPU what is not marked is all less what is, or added up anew where that difference would cancel: a rule marks
    few tokens of a healthy run. Elsewhere one product of matrices adds up both.
    """
    if values.device.type == "cpu":
        whole = values.numpy().sum(1, dtype=np.float64)
        return torch.from_numpy(np.stack([_split(mark, values.numpy(), whole) for mark in marks.numpy()]))
    columns = values.double().clamp(max=torch.finfo(torch.float64).max)  # 0 times infinity is NaN
    both = torch.stack([marks, ~marks], 1).double()
    sums: Tensor = both @ columns.T
    return sums


def _split(marks: "NDArray[np.bool_]", values: "NDArray[Any]", whole: "NDArray[np.float64]") -> "NDArray[np.float64]":
    marked = values.take(np.flatnonzero(marks), 1).sum(1, dtype=np.float64)
    if ((marked > 0.5 * whole) | np.isinf(whole)).any():
        return np.stack([marked, values.take(np.flatnonzero(~marks), 1).sum(1, dtype=np.float64)])
    return np.stack([marked, whole - marked])


def weight_sums(gaps: Gaps, group: Group, whole: bool) -> tuple[Tensor, Tensor]:
    """Sums of weights over tokens [len(WEIGHT_SUMS), R] and their maxima [R], float64.

    Squares in float64, since a weight without an upper bound may be as large as exp(80).
    """
    rules = group.rules[group.drops :]
    places = [placed.gap for placed in rules]
    truncated = group.marked.narrow(0, group.drops, len(rules)).double()
    weight, excess = (part.double() for part in (sequence_weights if whole else token_weights)(gaps, group))
    if gaps.valid is not None:
        weight = torch.where(chosen(gaps.filled if whole else gaps.valid, places), weight, 0.0)
    terms = (weight, weight.square(), excess, excess.square(), truncated)
    counts = chosen(gaps.counts, places) if whole else None
    sums = [term.sum(-1) if counts is None else torch.linalg.vecdot(term, counts) for term in terms]
    return torch.stack(sums), weight.amax(-1)


def differing(gaps: Gaps, left: Tensor, right: Tensor, whole: bool, places: Sequence[int]) -> Tensor:
    """How many tokens of the gaps at `places` are marked on one side alone: [R, ...] bool twice -> [R] float64."""
    apart = left != right
    if whole:
        return (apart * chosen(gaps.counts, places)).sum(-1)
    return gaps.segments.sum(apart).sum(-1)
