"""What decisions add up to: what rules would drop or reweight, and where two of them differ.

Shapes: T tokens, N sequences, R rules in the order of core.corrections.Decided: those on tokens, then those on whole
sequences, whose decision stands at each of their tokens: so token figures mean the same for both. Results are sums and
counts, without a denominator: over tokens [R], or terms of each sequence that are still to be added up, [R, N]. Nothing
is decided here.
"""

from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

from offpolicy_monitor.core.checks import DOUBLE, MARKS, check
from offpolicy_monitor.core.corrections import Anchor, Decided, Group, clip_weights, gaps_of
from offpolicy_monitor.core.device import constant, where
from offpolicy_monitor.core.gap import Gaps, chosen
from offpolicy_monitor.core.ragged import total

#: Where each sum stands in what `drop_sums` gives of a rule: which side, and which value. |A| is 0 without advantages.
DROP_SUMS: Final = {
    "k3_masked": (0, 0),
    "log_ratio_square_masked": (0, 1),
    "masked_advantage_mass": (0, 2),
    "k3_kept": (1, 0),
    "log_ratio_square_kept": (1, 1),
}


def dropped_in_sequences(gaps: Gaps, decided: Decided) -> Tensor:
    """Tokens of each sequence that rules drop, and of them those below the bounds: [2, R, N] float64, R >= 1."""

    def dropped(group: Group) -> Tensor:
        marks = group.marks.narrow(1, 0, len(group.drops))
        return group.counted(marks) if group.whole else gaps.segments.sum(marks)

    return torch.cat([dropped(group) for group in decided.groups if group.drops], 1)


def drop_terms(gaps: Gaps, decided: Decided, dropped: Tensor) -> dict[str, Tensor]:
    """Tokens that are dropped, and sequences: those that lose all of their tokens, and some. [R, N] each, R >= 1.

    dropped: [2, R, N] of `dropped_in_sequences`. Raises ValueError for another shape, TypeError for another dtype.
    """
    check("dropped", dropped, 2, len(decided.drops), gaps.segments.sequences, of=DOUBLE)
    tokens, low = dropped.unbind()
    touched = tokens > 0
    return {
        "masked_tokens": tokens,
        "masked_low_tokens": low,
        "masked_sequences": touched & (tokens == gaps.counts_of(gaps_of(decided.drops))),
        "touched_sequences": touched,
    }


def drop_sums(gaps: Gaps, group: Group) -> Tensor:
    """Sums of k3, d^2 and |A| over what a group drops, and over what it keeps: [drops, 2, 3] float64, drops >= 1.

    What is kept is added up, since a rule drops the largest values, and what is left can be a rounding error of the
    whole.
    """
    return split_sums(group.dropped, gaps.sequence_weights if group.whole else gaps.token_weights, gaps_of(group.drops))


def split_sums(marks: Tensor, values: Tensor, gaps: Sequence[int]) -> Tensor:
    """Sums of K values where R marks are, and where they are not: [R, n] bool, [G, K, n] float -> [R, 2, K] float64.

    gaps: which of G the values of each mark are. One product of matrices adds up both sides. Raises ValueError for
    another rank or length, TypeError for another dtype.
    """
    check("values", values, -1, -1, -1)
    check("marks", marks, len(gaps), values.shape[2], of=MARKS)
    columns = values.flatten(0, 1).double().clamp(max=torch.finfo(torch.float64).max)  # 0 times infinity is NaN
    shape = len(gaps), 2, marks.shape[1]
    sides = torch.empty(shape, dtype=torch.float64, device=marks.device)
    torch.eq(marks[:, None], constant([[True], [False]], torch.bool, marks.device), out=sides)
    sums = (sides @ columns.T).view(len(gaps), 2, *values.shape[:2])
    return torch.stack([sums[rule].select(1, gap) for rule, gap in enumerate(gaps)])


def weight_sums(gaps: Gaps, group: Group) -> tuple[dict[str, Tensor], Tensor]:
    """Sums over tokens of what a group weighs them with, and the largest weights, [clips] each, float64.

    Of whole sequences the terms of each, [clips, N], since a weight counts for all tokens of one. At least one rule
    that reweights. Squares in float64, since a weight without an upper bound may be as large as exp(80).
    """
    weights, first, clips = clip_weights(gaps, group), len(group.drops), len(group.clips)
    truncated = group.marked.narrow(0, first, clips)
    if group.valid is not None:
        weights = where(group.valid.narrow(0, first, clips), weights, 0.0)
    if group.whole:
        counted = group.counted(weights, first)
        sums, squares, truncations = counted, counted * weights, group.counted(truncated, first)
    else:
        sums, squares, truncations = total(weights), torch.linalg.vecdot(weights, weights), total(truncated)
    found = {
        "weight": sums[0],
        "weight_square": squares[0],
        "weight_excess": sums[1],
        "weight_excess_square": squares[1],
        "truncated_tokens": truncations,
    }
    return found, weights[0].amax(-1)


def differing(decided: Decided) -> tuple[tuple[int, ...], Tensor]:
    """The rows of rules by another anchor, and on how many tokens each decides otherwise there: [R] float64, R >= 1."""
    rows, counts = list[int](), list[Tensor]()
    for group in decided.groups:
        by = dict[tuple[int, Anchor], int]()
        for number, placed in enumerate(group.rules):
            by.setdefault((placed.row, placed.anchor), number)  # a row that drops and weighs is there twice
        there = [placed for placed in group.rules if placed.anchor is Anchor.THERE]
        if there:
            here = [by.get((placed.row, Anchor.HERE), by[placed.row, Anchor.OWN]) for placed in there]
            first = by[there[0].row, Anchor.THERE]
            apart = chosen(group.marked, here) != group.marked.narrow(0, first, len(there))
            rows += [placed.row for placed in there]
            counts.append(total(group.counted(apart, first) if group.whole else apart))
    return tuple(rows), torch.cat(counts)
