"""Few sequences that hold the mismatch: how much of k3, how many they are, where in them it begins, which is the worst.

Read off the worst sequences of each step and the histogram of sequences' mean d; neither is needed for the other.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from offpolicy_monitor.summary.histogram import bin_edges
from offpolicy_monitor.summary.step import StepSummary
from offpolicy_monitor.summary.sums import Sums
from offpolicy_monitor.summary.tables.breakdown import buckets
from offpolicy_monitor.summary.tables.worst import GAP_INDEX, Sequences

GAP: Final = "mismatch"
#: A sequence stands out whose mean k3 is so many times that of all tokens of its step but those of its worst sequences,
#: and is so much at the least.
STANDS_OUT: Final = 10.0
LOUD: Final = 0.01
#: Mean |d| of a sequence, in nats, from which it is foreign to its model; and how many times that of nine in ten.
FOREIGN: Final = 0.3
BEYOND_MOST: Final = 10.0
MOST: Final = 0.9
#: The part of a sequence whose d^2 tells whether it was wrong from its beginning.
BEGINNING: Final = 0.25

SHARE: Final = "few.k3_share"
PART: Final = "few.sequences_share"
COUNT: Final = "few.sequences"
EARLY: Final = "few.beginning_second_moment"
WORST: Final = "few.worst"


def few(
    summaries: Sequence[StepSummary], merged: StepSummary, steps: Sequence[int]
) -> tuple[dict[str, float], dict[str, str]]:
    """The figures of the sequences that stand out, and the name of the worst; nothing where none does."""
    total, sequences = (_sums(merged).get(name, 0) for name in ("k3", "sequences"))
    if not total > 0:
        return {}, {}
    found = [one for step, summary in zip(steps, summaries, strict=True) for one in _loud(step, summary)]
    held = sum(one.k3 for one in found)
    foreign, least = _foreign(merged)
    count = max(len(found), foreign)
    if not count:
        return {}, {}
    figures = {SHARE: min(1.0, max(held, least) / total), COUNT: float(count), PART: count / sequences}
    if not found:
        return figures, {}
    worst = max(found, key=lambda one: one.k3)
    return figures | _beginning(merged, worst.tokens), {WORST: worst.name}


class _Loud(NamedTuple):
    """One of the worst sequences of a step, and its tokens of the gap and their k3."""

    step: int
    sequences: Sequences
    row: int
    tokens: int
    k3: float

    @property
    def name(self) -> str:
        """What leads to it."""
        shard, index, _ = self.sequences.whole[self.row].tolist()
        said = f"step {self.step}, shard {shard}, index {index}"
        id_ = self.sequences.ids[self.row] if self.sequences.ids else None
        return said if id_ is None else f"{said}, id {id_}"


def _sums(summary: StepSummary) -> Sums:
    gap = summary.gaps.get(GAP)
    return {} if gap is None else gap.sums


def _loud(step: int, summary: StepSummary) -> list[_Loud]:
    """Of a step's worst sequences by their sum of k3 those that stand out from all that are not among them."""
    sums, found = _sums(summary), summary.worst.sequences
    rows = found.first(GAP, "k3_share")
    tokens, _, k3 = found.gaps[rows, GAP_INDEX[GAP]].astype(np.float64).T
    others = sums.get("tokens", 0) - tokens.sum()
    usual = max(0.0, sums.get("k3", 0.0) - k3.sum()) / others if others > 0 else 0.0
    if not usual > 0:
        return []
    least = max(LOUD, STANDS_OUT * usual)
    first = zip(rows.tolist(), tokens.tolist(), k3.tolist(), strict=True)
    return [_Loud(step, found, row, int(own), sum) for row, own, sum in first if sum > least * own]


def _foreign(merged: StepSummary) -> tuple[int, float]:
    """How many sequences' mean d is far beyond that of most, and what they hold of the sum of k3 at the least.

    k3 is convex in d: a sequence's mean k3 is at least the k3 of its mean d. It is taken to have as many tokens as the
    mean sequence.
    """
    counts = merged.gaps[GAP].histogram("log_geometric_ratio").counts
    low, high = bin_edges()
    nearest = np.maximum(np.maximum(low, -high), 0.0)
    order = np.argsort(nearest, kind="stable")
    ascending = counts[order].cumsum()
    if not len(ascending) or not ascending[-1]:
        return 0, 0.0
    usual = nearest[order][np.searchsorted(ascending, MOST * ascending[-1])]
    chosen = (counts > 0) & (nearest > max(FOREIGN, BEYOND_MOST * usual))
    signed = np.where(high <= 0, -nearest, nearest)[chosen]
    k3 = np.expm1(np.minimum(signed, 80.0)) - signed
    sums = _sums(merged)
    return int(counts[chosen].sum()), float((counts[chosen] * k3).sum()) * sums["tokens"] / sums["sequences"]


def _beginning(merged: StepSummary, tokens: int) -> dict[str, float]:
    """The part of d^2 at positions in the first quarter of a sequence of so many tokens, over the part expected.

    Positions stand in powers of two: those wholly within the quarter count. Of one too short for that it is the part at
    first tokens over the part of the tokens that these are.
    """
    end = 1 << max(0, int(BEGINNING * tokens)).bit_length() >> 1
    rows = buckets(merged.arrays, "position", GAP)
    whole = sum(row["log_ratio_square"] for row in rows.values())
    if not whole > 0:
        return {}
    if end < 2:
        first = rows.get("first")
        share = sum(row["tokens"] for row in rows.values()) / first["tokens"] if first else 0.0
        return {EARLY: first["log_ratio_square"] / whole * share} if first else {}
    within = [row for name, row in rows.items() if name == "first" or (name.isdigit() and 2 * int(name) <= end)]
    return {EARLY: sum(row["log_ratio_square"] for row in within) / whole / (end / tokens)}
