"""How mismatch k3 goes from step to step: where it jumped and stayed, and whether it grows from there on.

Medians and ranks, so that a single loud step is neither.
"""

from collections.abc import Sequence
from statistics import median
from typing import Final, NamedTuple

from offpolicy_monitor.pairs import kendall_z
from offpolicy_monitor.summary.step import StepSummary

#: Steps on either side of a jump.
AROUND: Final = 3
#: Rise of k3 that is a jump and no drift; vime's issue 64 has 3 in thirty steps.
LEAST_JUMP: Final = 3.0
#: A rise by as much at once, from which on k3 grows by less than GOES_ON, is a step and no growth.
LEAST_STEP, GOES_ON = 2.0, 1.25
#: Fewer steps show no growth.
FEWEST: Final = 6
#: Below this k3 engine and trainer agree as well as float32 allows; a rise above less is taken as one above this.
NO_MISMATCH: Final = 1e-7

JUMP: Final = "steps.k3_jump"
JUMPED_AT: Final = "steps.k3_jump_step"
BEFORE: Final = "steps.before_jump"
GROWTH: Final = "steps.k3_growth"
GROWTH_Z: Final = "steps.k3_growth_z"


class Jump(NamedTuple):
    """A lasting rise: how many times, and the index of the first step that is higher."""

    times: float
    begin: int


def over_steps(summaries: Sequence[StepSummary], steps: Sequence[int]) -> tuple[dict[str, float], int]:
    """The largest lasting rise of k3, its step, and how many are before it; growth from there, and z of that.

    Where there was no jump growth is from the first step on: the median of the last third over that of the first. What
    has doubled at once, which is too little for a jump, and does not grow from there on, has not grown: growth is over
    that rise. z is that of Mann and Kendall's trend test. Also the index of the first step since the jump, 0 for none.
    """
    known = [(at, k3) for at, summary in enumerate(summaries) if (k3 := _k3(summary)) is not None]
    values, found, begun = [k3 for _, k3 in known], dict[str, float](), 0
    jump = _jump(values)
    if jump is not None:
        found = {JUMP: jump.times, JUMPED_AT: float(steps[known[jump.begin][0]]), BEFORE: float(jump.begin)}
        begun = jump.begin if jump.times >= LEAST_JUMP else 0
    step_up = 1.0
    if jump is not None and LEAST_STEP <= jump.times < LEAST_JUMP and _times(values[jump.begin :]) < GOES_ON:
        step_up = jump.times
    return found | _growth(values[begun:], step_up), known[begun][0] if begun else 0


def _k3(summary: StepSummary) -> float | None:
    gap = summary.gaps.get("mismatch")
    return gap.sums["k3"] / gap.sums["tokens"] if gap is not None and gap.sums.get("tokens") else None


def _jump(k3: Sequence[float]) -> Jump | None:
    """The largest rise: the least of AROUND steps over the most of the AROUND before; None if too few."""
    rises = [
        Jump(min(k3[index : index + AROUND]) / max(NO_MISMATCH, *k3[index - AROUND : index]), index)
        for index in range(AROUND, len(k3) - AROUND + 1)
    ]
    return max(rises, default=None)


def _growth(k3: Sequence[float], step_up: float) -> dict[str, float]:
    if len(k3) < FEWEST:
        return {}
    return {GROWTH: _times(k3) / step_up, GROWTH_Z: kendall_z(k3)}


def _times(k3: Sequence[float]) -> float:
    """The median of the last third over that of the first."""
    third = max(1, len(k3) // 3)
    return median(k3[-third:]) / max(NO_MISMATCH, median(k3[:third]))
