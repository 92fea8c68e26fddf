"""Healthy runs: a seed decides profile, noise, sizes and how the run learns, and nothing in it is a fault.

Levels of k3 by profile are those that frameworks report of runs that trained well. Entropy falls and answers grow
slowly, k3 wanders and falls or rises by less than a factor of two over the run, and single steps are noisier.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from tests.detection.pool import EVEN, RELATIVE
from tests.detection.state import Run, State
from tests.detection.steps import Part, make_step
from tests.detection.tokens import scale_of

STEPS: Final = 320
#: Profile -> share of the runs, and the least and the most mismatch k3 of a healthy one.
LEVELS: Final[Mapping[str, tuple[float, float, float]]] = {
    "dense_bf16": (0.4, 5e-5, 8e-4),
    "moe_bf16": (0.2, 2e-4, 2e-3),
    "fp8": (0.2, 3e-4, 2e-3),
    "fp4": (0.1, 2e-3, 1e-2),
    "bitwise": (0.1, 0.0, 0.0),
}
METHODS: Final = (None, None, "icepop", "grpo", "kpop", "tis_token", "geometric_mask_wide", "gspo")
#: Of these the last two are for engines that are precise: others use masks that are as wide as their noise.
OF_COARSE: Final = 6


@dataclass(frozen=True)
class Course:
    """How a run changes in 100 steps: log k3, share of sequences with a fifth of the entropy, log length; and how much
    log k3 wanders from step to step.
    """

    k3: float
    certain: float
    length: float
    wander: float


@dataclass(frozen=True)
class Healthy:
    """A run that nothing is wrong with: what it is, how it begins, and how it changes."""

    run: Run
    first: State
    course: Course

    def steps(self, seed: int, steps: int = STEPS) -> Iterator[list[Part]]:
        """The messages of each training step's last gradient step."""
        source = np.random.default_rng([seed, 1])
        wander = 0.0
        for step in range(steps):
            wander = 0.9 * wander + self.course.wander * float(source.standard_normal())
            yield make_step(self.run, self._state(step, wander, source), step, source)

    def _state(self, step: int, wander: float, source: np.random.Generator) -> State:
        time = step / 100
        noisier = 0.05 * float(source.standard_normal()) + (0.35 if source.random() < 0.02 else 0.0)
        return replace(
            self.first,
            scale=self.first.scale * math.exp(0.5 * self.course.k3 * time + wander + noisier),
            certain=min(0.9, max(0.0, self.first.certain + self.course.certain * time)),
            length=self.first.length * math.exp(self.course.length * time),
            drift=self.first.drift * math.exp(0.2 * float(source.standard_normal())),
            agreement=self.first.agreement + 0.003 * float(source.standard_normal()),
        )


def healthy_run(seed: int) -> Healthy:
    """The run of a seed."""
    source = np.random.default_rng([seed, 0])
    shares = np.array([level[0] for level in LEVELS.values()])
    profile = str(source.choice(list(LEVELS), p=shares / shares.sum()))
    run = _run(profile, source)
    _, least, most = LEVELS[profile]
    k3 = _between(least, most if run.noise == EVEN else most / 4, source) if most else 0.0
    first = State(
        scale=scale_of(k3, run),
        drift=_between(0.001, 0.004, source) if run.method == "gspo" else _between(0.003, 0.03, source),
        length=_between(80, 160, source),
        certain=float(source.choice([0.0, 0.2, 0.4, 0.85], p=[0.5, 0.2, 0.2, 0.1])),
        lag=int(source.integers(0, 7)),
        agreement=float(source.uniform(0.85, 0.97)),
    )
    course = Course(
        k3=float(source.uniform(-0.2, 0.2)),
        certain=float(source.uniform(0.0, 0.06)),
        length=float(source.uniform(-0.05, 0.15)),
        wander=0.03,
    )
    return Healthy(run, first, course)


def _run(profile: str, source: np.random.Generator) -> Run:
    shards, labelled = [(1, False), (1, False), (1, True), (2, False), (4, True)][int(source.integers(5))]
    uneven = 6.0 if profile == "moe_bf16" or (profile == "dense_bf16" and source.random() < 0.2) else 1.0
    return Run(
        profile=profile,
        sequences=int(source.choice([16, 16, 16, 32, 160], p=[0.3, 0.3, 0.2, 0.15, 0.05])),
        shards=shards,
        labelled=labelled,
        noise=RELATIVE if profile == "dense_bf16" and uneven == 1 and source.random() < 0.3 else EVEN,
        uneven=uneven,
        diverse=0.4 if source.random() < 0.3 else 0.0,
        broad=float(source.uniform(0.4, 0.9)),
        method=METHODS[int(source.integers(OF_COARSE if profile in ("fp8", "fp4") else len(METHODS)))],
        routed=profile == "moe_bf16" and bool(source.random() < 0.5),
    )


def _between(least: float, most: float, source: np.random.Generator) -> float:
    return math.exp(source.uniform(math.log(least), math.log(most)))
