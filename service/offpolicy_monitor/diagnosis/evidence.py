"""Evidence: figures of one or more steps by their paths, as hypotheses are judged by.

A path is that of the step answer without `gaps.`; a figure that a step lacks is not there. It knows summaries and no
hypothesis.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from offpolicy_monitor.summary.step import StepSummary, merge_all

Evidence = Mapping[str, float]

#: Steps on either side of a jump in mismatch k3.
AROUND: Final = 3


def collect(summaries: Sequence[StepSummary]) -> Evidence:
    """The evidence of steps in order: figures of their merge, and the largest jump of mismatch k3 between them."""
    figures = merge_all(summaries).step_figures()
    evidence = dict(_flat("mismatch", figures["gaps"].get("mismatch", {})))
    evidence |= _flat("signature", figures.get("signature", {}))
    evidence |= _flat("routing.mismatch", (figures.get("routing") or {}).get("mismatch", {}))
    jump = _jump([_k3(summary) for summary in summaries])
    return evidence if jump is None else {**evidence, "steps.k3_jump": jump}


def _k3(summary: StepSummary) -> float | None:
    gap = summary.gaps.get("mismatch")
    return gap.sums["k3"] / gap.sums["tokens"] if gap is not None and gap.sums.get("tokens") else None


def _jump(k3: Sequence[float | None]) -> float | None:
    """The largest lasting rise: the least of AROUND steps over the most of the AROUND before; None if too few."""
    known = [value for value in k3 if value is not None]
    rises = [
        min(known[place : place + AROUND]) / before
        for place in range(AROUND, len(known) - AROUND + 1)
        if (before := max(known[place - AROUND : place])) > 0
    ]
    return max(rises) if rises else None


def _flat(prefix: str, value: Any) -> Iterator[tuple[str, float]]:
    """(path, number) of every number in nested figures."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from _flat(f"{prefix}.{name}", item)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield prefix, value
