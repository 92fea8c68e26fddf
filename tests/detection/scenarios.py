"""What goes wrong, as data: one row a scenario, with the alerts that name it and the diagnosis it should get.

A row changes the state of a healthy step from the onset on. Faults that creep have a step at which they have grown to
where the goal counts from (`crossed`). It knows neither how steps are made nor how they are judged.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from tests.detection.changes import (
    FROZEN,
    blinded,
    collapse,
    drift,
    frozen,
    longer,
    spike,
    stale_replica,
    surer,
    unsynced,
)
from tests.detection.state import Run, State

STRENGTHS: Final = ("weak", "medium", "strong")
#: Healthy steps before the onset: the baseline is of steps 5 to 25, and entropy is compared with 50 steps before.
ONSET: Final = 70
AFTER: Final = 50

Change = Callable[[State, int, float], State]


USUAL_RUN: Final = Run()
USUAL_STATE: Final = State(scale=0.03)


@dataclass(frozen=True)
class Scenario:
    """One thing that goes wrong.

    alerts     names of the rules any of which names it: its own; none where no rule can see it, and all must be quiet
    sizes      weak, medium, strong, in the unit of `what`
    change     (state of a healthy step, steps since the onset, size) -> the state with the fault
    diagnosis  the hypothesis that should come first; None where there is none of that kind
    within     steps in which its own alert must fire at medium strength, counted from `crossed(size)` after the onset
    lasts      steps with the fault that are played
    """

    name: str
    alerts: tuple[str, ...]
    what: str
    sizes: tuple[float, float, float]
    change: Change
    diagnosis: str | None = None
    within: int = 10
    crossed: Callable[[float], int] = lambda size: 0
    lasts: int = AFTER
    run: Run = USUAL_RUN
    first: State = USUAL_STATE


SCENARIOS: Final = (
    Scenario(
        "slow-drift", ("MismatchDrift",), "growth of mean |d| in 30 steps, from 0.011", (2.2, 3.3, 6.0), drift,
        within=15, crossed=lambda size: math.ceil(30 * (math.sqrt(2) - 1) / (size - 1)), first=State(scale=0.05),
    ),
    Scenario("spike", ("MismatchSpike",), "growth of |d| in single steps", (6.0, 10.0, 20.0), spike),
    Scenario(
        "stale-replica", ("ShardOutlier", "SyncBroken"), "change of a logit in one version", (0.03, 0.1, 0.3),
        stale_replica, "stale_weights", run=Run(shards=4, labelled=True),
    ),
    Scenario(
        "sync-broken", ("SyncBroken",), "change of a logit in one version", (0.05, 0.1, 0.3), unsynced, "stale_weights",
    ),
    Scenario(
        "top-p", ("RatioNotCalibrated",), "p of the nucleus", (0.98, 0.95, 0.9),
        lambda state, after, size: replace(state, nucleus=size), "top_p",
    ),
    Scenario(
        "temperature", ("MismatchKL", "MismatchDrift"), "temperature of the sampler", (0.95, 0.9, 0.8),
        lambda state, after, size: replace(state, temperature=size), "temperature",
    ),
    Scenario(
        "raw-temperature", ("SamplingNotCalibrated",), "temperature of the draw, which no log-prob has",
        (0.9, 0.8, 0.7), lambda state, after, size: replace(state, drawn=size), "sampling",
    ),
    Scenario(
        "off-by-one", ("Correlation", "MismatchKL"), "share of the sequences", (0.1, 0.5, 1.0),
        lambda state, after, size: replace(state, shifted=size), "off_by_one",
    ),
    Scenario(
        "nan", ("DataQuality",), "share of the tokens", (1e-3, 5e-3, 5e-2),
        lambda state, after, size: replace(state, broken=size),
    ),
    Scenario(
        "copied", ("DataQuality",), "all of the tokens", (1.0, 1.0, 1.0),
        lambda state, after, size: replace(state, copied=True), "copied",
    ),
    Scenario(
        "length-surge", ("LengthSurge",), "growth of answers in 10 steps", (1.6, 2.0, 3.0), longer,
        crossed=lambda size: math.ceil(10 * 0.3 / (size - 1)),
    ),
    Scenario(
        "truncation", ("Truncation",), "tokens that answers are cut at, of 125 in the mean", (75, 50, 20),
        lambda state, after, size: replace(state, cap=int(size)), within=20,
    ),
    Scenario(
        "frozen-sampler", ("MismatchDrift",), "change of a logit in one step that the engine does not get",
        (0.005, 0.01, 0.02), unsynced, within=15, crossed=lambda size: math.ceil((USUAL_STATE.scale / size) ** 2),
    ),
    Scenario(
        "frozen-for-long", ("RatioNotCalibrated", "MismatchDrift"), "mean ratio that 2,000 steps lead to, from 1",
        (0.83, 0.66, 0.3), frozen, crossed=lambda size: math.ceil(0.005 * FROZEN / (1 - size)), lasts=90,
    ),
    Scenario(
        "dropped-stale-data", (), "lag up to which data is kept, of up to 6", (4, 2, 0),
        lambda state, after, size: replace(state, oldest=int(size)), "noise", run=Run(sequences=64),
        first=State(scale=0.03, lag=6),
    ),
    Scenario(
        "engine-internal", ("MismatchKL", "MismatchDrift"), "noise of the decode's logits beside the prefill's",
        (0.2, 0.35, 0.6), lambda state, after, size: replace(state, decode=size), "engine_internal",
        run=Run(rescored=True), first=State(scale=0.03, decode=0.01),
    ),
    Scenario(
        "staleness", ("SecondMoment", "TotalOffPolicy"), "change of a logit until the last gradient step",
        (0.4, 0.6, 1.0), lambda state, after, size: replace(state, drift=size),
    ),
    Scenario(
        "policy-lag", ("StaleData",), "largest version lag", (9, 12, 24),
        lambda state, after, size: replace(state, lag=int(size)),
    ),
    Scenario(
        "entropy-collapse", ("EntropyCollapse",), "steps in which entropy falls from 0.5 to 0.15 nats", (40, 20, 5),
        surer, crossed=lambda size: round(0.75 * size),
    ),
    Scenario(
        "reward-collapse", ("RewardCollapse",), "share of the prompts that are solved, from 0.5", (0.2, 0.1, 0.0),
        lambda state, after, size: replace(state, solved=size), within=20, run=Run(sequences=64),
    ),
    Scenario(
        "collapse", ("CollapseRisk",), "e-foldings of the noise in 20 steps", (2.5, 3.5, 4.5), collapse, within=20,
    ),
    Scenario(
        "mask-blind", ("MaskBlind",), "growth of the noise in 40 steps", (3.0, 4.5, 5.5), blinded, within=50,
        run=Run("fp4", sequences=64, method="icepop", uneven=12.0), first=State(scale=0.05),
    ),
    Scenario(
        "length-bias", ("LengthBias",), "noise of a logit under a sequence mask", (0.12, 0.16, 0.3),
        lambda state, after, size: replace(state, scale=size), run=Run(sequences=96, broad=0.9, method="mis_sequence"),
    ),
    Scenario(
        "routing", ("RoutingAgreement",), "share of experts in common", (0.89, 0.85, 0.7),
        lambda state, after, size: replace(state, agreement=size), run=Run("moe_bf16", routed=True, uneven=6.0),
    ),
)  # fmt: skip
