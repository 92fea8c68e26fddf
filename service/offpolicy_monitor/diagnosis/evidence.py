"""Evidence: figures of one or more steps by their paths, as hypotheses are judged by.

A figure that a step lacks is not there. It knows summaries and no hypothesis.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from offpolicy_monitor.figures import walk
from offpolicy_monitor.summary.step import StepSummary, merge_all

Evidence = Mapping[str, float]

#: Steps on either side of a jump in mismatch k3.
AROUND: Final = 3
#: What the evidence is taken from.
LOOKED_AT: Final = ("gaps.mismatch.", "signature.", "routing.mismatch.")
#: The largest lasting rise of mismatch k3 from step to step: the one piece of evidence that is no figure of a step.
JUMP: Final = "steps.k3_jump"


def collect(summaries: Sequence[StepSummary]) -> Evidence:
    """The evidence of steps in order: figures of their merge, and the largest jump of mismatch k3 between them."""
    figures = merge_all(summaries).step_figures()
    evidence = {path: value for path, value in walk(figures) if path.startswith(LOOKED_AT)}
    jump = _jump([_k3(summary) for summary in summaries])
    return evidence if jump is None else {**evidence, JUMP: jump}


def _k3(summary: StepSummary) -> float | None:
    gap = summary.gaps.get("mismatch")
    return gap.sums["k3"] / gap.sums["tokens"] if gap is not None and gap.sums.get("tokens") else None


def _jump(k3: Sequence[float | None]) -> float | None:
    """The largest lasting rise: the least of AROUND steps over the most of the AROUND before; None if too few."""
    known = [value for value in k3 if value is not None]
    rises = [
        min(known[index : index + AROUND]) / before
        for index in range(AROUND, len(known) - AROUND + 1)
        if (before := max(known[index - AROUND : index])) > 0
    ]
    return max(rises) if rises else None
