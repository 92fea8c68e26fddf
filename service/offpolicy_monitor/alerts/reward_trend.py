"""Reward trend: whether a run's rewards rise, and how much of what they had gained is lost, by means over SPAN steps.

Rewards have any scale and sign, so all is measured against the run itself: what it has gained since its first steps,
and the noise of its steps. A function of the column and an index, which looks back from there alone.
"""

import math
from itertools import pairwise
from statistics import median
from typing import Final, NamedTuple

from offpolicy_monitor.alerts.history import Column
from offpolicy_monitor.alerts.trends import known

#: Steps of a mean; steps between two means that are compared; steps with a reward without which nothing is said.
SPAN, APART, LEAST = 10, 50, 20
#: Steps whose differences tell the noise.
LATELY: Final = 100
#: Standard errors that a rise, and standard deviations of a step that a fall must have: the best of many means is so by
#: chance too, and batches differ.
RISE, FALL = 2.0, 3.0


class Learning(NamedTuple):
    """rises: the mean of the newest steps is above that of 50 steps ago, or of the first ones, by two standard errors.

    lost: the share of best - first that is lost again, 0 where it is within noise; at most 0.75 of a run that has not
    gained more than its noise.
    """

    rises: bool
    lost: float


def of_run(rewards: Column, means: list[float | None], index: int) -> Learning | None:
    """At a step; None where too few of the run's steps have a reward. means: [n] what was noted of earlier steps."""
    if math.isnan(rewards[index]):
        return None
    seen = _means(rewards, means, index)
    if len(seen) <= LEAST - SPAN:
        return None
    now, first, best, earlier = seen[-1], seen[0], max(seen), seen[max(0, len(seen) - 1 - APART)]
    noise = _noise(known(rewards, index + 1, LATELY))
    rises = now - earlier > RISE * noise * math.sqrt(2 / SPAN)
    fall, gain = best - now, best - first
    if not fall > FALL * noise:
        return Learning(rises, 0.0)
    return Learning(rises, fall / gain if gain > FALL * noise else min(0.75, fall / max(gain, 1e-12)))


def _means(rewards: Column, means: list[float | None], index: int) -> list[float]:
    """The mean of the last SPAN rewards at each step up to `index` that has one, and has so many."""
    if means[index] is None:
        for number in range(means.index(None), index + 1):
            last = known(rewards, number + 1, SPAN)
            full = len(last) == SPAN and not math.isnan(rewards[number])
            means[number] = sum(last) / SPAN if full else math.nan
    return [mean for mean in means[: index + 1] if mean is not None and mean == mean]


def _noise(values: list[float]) -> float:
    """The standard deviation of a step, of the differences between steps, which a trend hardly moves."""
    return median([abs(after - before) for before, after in pairwise(values)]) / 0.954
