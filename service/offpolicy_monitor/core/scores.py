"""Scores: what rules compare with their thresholds, by name; a figure of each token, or of each sequence.

Shapes: G gaps, R scores of one of them each, T tokens, N sequences. Notation of core.columns and core.gap: d, D, L, p,
q; KL is the binary KL of divergences.binary_kls. A sequence's score of a rule on tokens is the least (or largest) of
its tokens'.

Sources: k2 and k3, Schulman, http://joschu.net/blog/kl-approx.html; the binary KL, DPPO,
https://arxiv.org/abs/2602.04879; exp|d| - 1, NeMo-RL's multiplicative error, https://github.com/NVIDIA-NeMo/RL
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

import torch
from torch import Tensor

from offpolicy_monitor.core.divergences import exponentials
from offpolicy_monitor.core.gap import Gaps
from offpolicy_monitor.core.outward import OUTWARD, outward_least, outward_score
from offpolicy_monitor.methods.curve import Given


class Score(NamedTuple):
    """A score: the index of its gap, its name, and what it depends on."""

    gap: int
    name: str
    given: Given = ()


def token_scores(gaps: Gaps, wanted: Sequence[Score]) -> list[Tensor]:
    """R [T] float32 or float64, of names in OF_TOKENS or OUTWARD. KeyError for another name."""
    outward = {score: outward_score(gaps, *score) for score in wanted if score.name in OUTWARD}
    return [outward[own] if own in outward else OF_TOKENS[own.name](gaps).select(0, own.gap) for own in wanted]


def sequence_scores(gaps: Gaps, wanted: Sequence[Score]) -> list[Tensor]:
    """R [N] float64, of names in OF_SEQUENCES, or `<token score>_min`, `_max` or `_abs_min`.

    0 where a sequence has no valid token. KeyError for another name.
    """
    outward = {score: outward_least(gaps, *score) for score in wanted if score.name.rpartition("_")[0] in OUTWARD}
    found = {name: _of_sequences(gaps, name) for name in {score.name for score in wanted if score not in outward}}
    return [outward[score] if score in outward else found[score.name].select(0, score.gap) for score in wanted]


OF_TOKENS: Final[Mapping[str, Callable[[Gaps], Tensor]]] = {
    "log_ratio": lambda gaps: gaps.columns.log_ratio,
    "log_ratio_abs": lambda gaps: gaps.columns.log_ratio_abs,
    "k3": lambda gaps: gaps.columns.k3,
    "probability_difference": lambda gaps: gaps.columns.probability_difference,
    "kl_away": lambda gaps: gaps.binary_kls[0],
    "kl_larger": lambda gaps: gaps.binary_kls[1],
}

#: Of all gaps, [G, N] each, but for the ends of OF_TOKENS. k3 is convex with its minimum at 0: its largest lies at an
#: end of d.
OF_SEQUENCES: Final[Mapping[str, Callable[[Gaps], Tensor]]] = {
    "log_geometric_ratio": lambda gaps: gaps.means.log_ratio,
    "log_product_ratio": lambda gaps: gaps.sums.log_ratio,
    "k2_mean": lambda gaps: gaps.means.log_ratio_square / 2,
    "k2_sum": lambda gaps: gaps.sums.log_ratio_square / 2,
    "k3_mean": lambda gaps: gaps.means.k3,
    "k3_sum": lambda gaps: gaps.sums.k3,
    "k3_max": lambda gaps: torch.maximum(*(exponentials(end).k3 for end in gaps.extremes["log_ratio"])),
    "growth_mean": lambda gaps: gaps.means.growth,
}


def _of_sequences(gaps: Gaps, name: str) -> Tensor:
    if name in OF_SEQUENCES:
        return OF_SEQUENCES[name](gaps)
    score, _, end = name.rpartition("_")
    ends = gaps.extremes
    if score not in ends:
        values = OF_TOKENS[score.removesuffix("_abs")](gaps)
        ends = gaps.ends({score: values.abs() if score.endswith("_abs") else values})
    return ends[score].min if end == "min" else ends[score].max
