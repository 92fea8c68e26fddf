"""Growth of a mismatch against the run's own beginning: a Shiryaev-Roberts test of log k3, from the first steps on.

At every step each of the last WINDOW steps may have been the one from which k3 is larger. What came before it, at most
the run's first FIRST steps, is the baseline; how much it tells follows from its number and from the profile's prior:

    m    ~ N(mean, 1 / (1 / spread^2 + b / s^2))    of b steps and the prior, in log k3
    LR_k = mean over d in SHIFTS of exp(d (e_k - d / 2) / (var m + s^2 / k))
    R    = sum over k of LR_k

e_k is the mean of the last k steps over m and over what a healthy run may have grown since; where it is not above 0,
LR_k counts as 0, which makes R smaller. Under steps as noisy as s, R minus the number of steps is a martingale, so R is
beyond A once in A steps at most; how seldom it is on runs like ours is HEALTHY_STEPS, which tests/detection measures. A
function of the first FIRST steps and of the last ones alone: a restart of the service changes nothing, and a new
attempt takes back what the steps before it said.

Source: Shiryaev, On optimum methods in quickest detection problems, 1963; Roberts, A comparison of some control chart
procedures, 1966; that R of any e-values has such a rate: Shin, Ramdas, Rinaldo, E-detectors, 2023,
https://arxiv.org/abs/2203.03532.
"""

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from statistics import median
from typing import Final, NamedTuple

from offpolicy_monitor.alerts.history import Column
from offpolicy_monitor.alerts.trends import known

#: Steps of a run that make its baseline, and those of which each may be the first that is larger.
FIRST, WINDOW = 26, 32
#: Steps before a change, and from it on, without which nothing is said: two are no level, and one spike is no growth.
BEFORE, LASTED = 2, 3
#: Growth beyond what is tolerated that is looked for, as logarithms: to twice and to four times.
SHIFTS: Final = (math.log(2), math.log(4))
#: What a healthy run may grow by: published ones did by 1.41 in 24 steps (verl pull request 7519) and by 1.8 in 120
#: (verl with TensorRT-LLM); nats per step, at least, and at most.
RATE, LEAST, MOST = math.log(1.41) / 24, 0.1, math.log(2)
#: Steps whose median is what k3 has grown to.
LATELY: Final = 7
#: One step counts as four times what is tolerated at most, so that a spike is no growth.
LARGEST: Final = math.log(4)
#: Noise of log k3 from step to step: before a run has shown its own, of how many steps that counts, and at least.
NOISE, NOISE_STEPS, LEAST_NOISE = 0.35, 8, 0.2
#: Variance of a baseline that is never believed away, since runs wander.
WANDER: Final = 0.01
#: Below this k3 engine and trainer agree as well as float32 allows; growth below it means nothing.
NO_MISMATCH: Final = 1e-5
#: An R from which on a run is said to have grown.
ENOUGH: Final = 10.0
#: R -> in how many healthy steps it was beyond that once, as tests/detection/detectors.py measured: of runs whose noise
#: is at most QUIET, and of noisier ones; in order.
HEALTHY_STEPS: Final = ((10.0, 8_000, 1_000), (20.0, 20_000, 2_000), (30.0, 50_000, 4_000), (100.0, 50_000, 20_000))
QUIET: Final = 0.35


class Prior(NamedTuple):
    """The k3 that runs of a profile begin with: the usual one, and by what factor most differ from it."""

    usual: float
    factor: float
    source: str


#: Profile -> what runs begin with. One that is not named is as the first.
PRIORS: Final[Mapping[str, Prior]] = {
    "dense_bf16": Prior(8e-4, 4.0, "verl: 1.6e-4 and 4.5e-4 (7B, TensorRT-LLM) to 6e-3 (DAPO); NeMo-RL docs 1e-3"),
    "moe_bf16": Prior(2e-3, 3.0, "vime issue 64; prime-rl's gate for new models 0.015"),
    "fp8": Prior(2e-3, 3.0, "prime-rl 1.1e-3 (GLM-5.1, NCCL) to 1e-2 (verl pull request 7519)"),
    "fp4": Prior(6e-3, 3.0, "NeMo-RL nightly gates up to 1e-1"),
    "bitwise": Prior(NO_MISMATCH, 2.0, "bitwise engines: 0"),
}


class Growth(NamedTuple):
    """evidence: R; steps_ago: since when, as the likeliest change has it; times: by what factor the newest of the steps
    since then are above what was before it; noise: s.
    """

    evidence: float
    times: float
    steps_ago: int
    noise: float


NOTHING: Final = Growth(0.0, 1.0, 0, NOISE)


class Level(NamedTuple):
    """A baseline: mean and variance of the run's log k3, and how many steps it is of."""

    mean: float
    variance: float
    steps: int


def logs(values: Column) -> list[float]:
    """log k3 of the steps that have one."""
    return [math.log(value if value > NO_MISMATCH else NO_MISMATCH) for value in values if value == value]


def noise(first: Sequence[float]) -> float:
    """The noise of a step: of NOISE, and of the differences between the run's steps, which a trend hardly moves."""
    apart = [abs(after - before) for before, after in pairwise(first)]
    # The median of |difference| of two normal values is 0.954 of one's standard deviation.
    own = (median(apart) / 0.954) ** 2 * len(apart) if apart else 0.0
    return max(LEAST_NOISE, math.sqrt((NOISE_STEPS * NOISE**2 + own) / (NOISE_STEPS + len(apart))))


def level(first: Sequence[float], s: float, prior: Prior) -> Level:
    """The baseline of these steps; what is beyond two s of their median counts as that."""
    spread = math.log(prior.factor) ** 2
    middle = median(first)
    total = sum(min(max(value, middle - 2 * s), middle + 2 * s) for value in first)
    weight = 1 / spread + len(first) / s**2
    return Level((math.log(prior.usual) / spread + total / s**2) / weight, 1 / weight + WANDER, len(first))


def healthy_steps(first: Sequence[float], prior: Prior) -> int:
    """How many of the run's first steps are its baseline: those before it grew, if it did so early."""
    found = growth(first, len(first), len(first), prior)
    return len(first) - found.steps_ago if found.evidence >= ENOUGH else len(first)


def growth(values: Sequence[float], first: int, baseline: int, prior: Prior, steps: int | None = None) -> Growth:
    """How surely, and by how much, the newest of `values` (log k3) are above the run's beginning.

    values: its `first` first steps, then the newest ones; of the former `baseline` are healthy. steps: how many the run
    has in all, where there are more.
    """
    count = len(values)
    now = count if steps is None else steps
    most = min(WINDOW, count - BEFORE)
    if most < LASTED:
        return NOTHING
    evidence, best, found = 0.0, 0.0, NOTHING
    s, base = _beginning(tuple(values[:first]), baseline, prior)
    floor = _floor(base, now)
    total = _excess(values[count - LASTED + 1 :], floor)
    for last in range(LASTED, most + 1):
        before = count - last
        if before >= baseline:
            over = values[before] - floor
            total += over if over < LARGEST else LARGEST
        else:
            base = level(values[:before], s, prior)
            floor = _floor(base, now)
            total = _excess(values[before:], floor)
        if total <= 0:
            continue
        excess = total / last
        variance = base.variance + s * s / last
        ratio = sum([math.exp(min(50.0, d * (excess - d / 2) / variance)) for d in SHIFTS]) / len(SHIFTS)
        evidence += ratio
        if ratio > best:
            times = math.exp(median(values[-min(last, LATELY) :]) - base.mean)
            best, found = ratio, Growth(0.0, times, last, s)
    return found._replace(evidence=evidence)


@lru_cache(maxsize=512)
def _beginning(first: tuple[float, ...], baseline: int, prior: Prior) -> tuple[float, Level]:
    """The noise and the baseline of a run's first steps, which are the same at every later one."""
    s = noise(first)
    return s, level(first[:baseline], s, prior)


def _floor(base: Level, now: int) -> float:
    """What a healthy run of so many steps may have grown to."""
    return base.mean + min(MOST, max(LEAST, RATE * (now - (base.steps + 1) / 2)))


def _excess(values: Sequence[float], floor: float) -> float:
    """The sum of what steps are above the floor, of which one counts as LARGEST at most."""
    return sum([min(value - floor, LARGEST) for value in values])


def of_run(values: Column, index: int, prior: Prior, baseline: int | None) -> tuple[Growth, int]:
    """The growth at a step of a run, and of how many steps its baseline is; `baseline` is that, where it is known.

    values: k3 by step, of which the first FIRST are the run's first and the others its newest ones.
    """
    first = logs(values[: min(FIRST, index + 1)])
    if index < FIRST:
        return growth(first, len(first), len(first), prior), 0
    if baseline is None:
        baseline = healthy_steps(first, prior) if first else 0
    newest = logs(known(values[FIRST:], index + 1 - FIRST, WINDOW))
    if not first:
        return NOTHING, baseline
    return growth([*first, *newest], len(first), baseline, prior, index + 1), baseline


def usual(values: Column, index: int, prior: Prior) -> float:
    """The k3 of the run's healthy first steps, as far as they go; NaN before there are any."""
    first = logs(values[: min(FIRST, index + 1)])
    if len(first) < BEFORE:
        return math.nan
    return math.exp(level(first[: healthy_steps(first, prior)], noise(first), prior).mean)


def once_in(found: Growth) -> int:
    """In how many steps a healthy run comes to so much evidence once; 0 where it is too little to tell."""
    column = 1 if found.noise <= QUIET else 2
    return int(max((row[column] for row in HEALTHY_STEPS if found.evidence >= row[0]), default=0))
