"""The rules as data: one row a rule, with its thresholds by profile, how long it must last, and where it comes from.

A new rule is a row. `measure` is a pure function of the history; the engine compares it with the thresholds. Steps are
training steps, since one lasts from ten seconds to half an hour.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from offpolicy_monitor.alerts import trends
from offpolicy_monitor.alerts.history import Column, History

PROFILES: Final = ("dense_bf16", "moe_bf16", "fp8", "fp4", "bitwise")

Threshold = float | Mapping[str, float]
Measure = Callable[[History], Column]


@dataclass(frozen=True)
class Rule:
    """A rule on the figures of a run's steps.

    inputs       paths of the figures it needs; without them it is silent
    measure      history -> [n] float64, what is compared; NaN: nothing to say at that step
    expression   the same in words, for docs and messages
    warning, critical   thresholds, or one a profile (PROFILES; the others have the first's); None: no such severity
    steps        how many steps in a row a severity must be breached
    above        whether it breaches above the threshold, or below it
    source       paper, framework or thread; `proposal` where a number has none
    """

    name: str
    summary: str
    inputs: tuple[str, ...]
    measure: Measure
    expression: str
    warning: Threshold | None
    critical: Threshold | None
    steps: Mapping[str, int]
    source: str
    above: bool = True

    def threshold(self, severity: Literal["warning", "critical"], profile: str) -> float | None:
        """The threshold of a severity under a profile; None where the rule has no such severity."""
        found = self.warning if severity == "warning" else self.critical
        if isinstance(found, Mapping):
            return found.get(profile, found[PROFILES[0]])
        return found


def lasting(warning: int, critical: int | None = None) -> dict[str, int]:
    """Steps a severity must last."""
    return {"warning": warning, "critical": warning if critical is None else critical}


def figure(path: str) -> Measure:
    """The figure itself."""
    return lambda history: history.column(path)


def magnitude(path: str) -> Measure:
    """The figure without its sign."""
    return lambda history: np.abs(history.column(path))


def drop_from_baseline(path: str) -> Measure:
    """How far the figure is below the run's baseline, in its own unit."""
    return lambda history: trends.baseline(history.column(path)) - history.column(path)


def drift_from_baseline(path: str) -> Measure:
    """EWMA over 20 steps over the run's baseline."""
    return lambda history: trends.over(trends.ewma(history.column(path), 20), trends.baseline(history.column(path)))


def surge(path: str) -> Measure:
    """EWMA over 20 steps over EWMA over 200."""
    return lambda history: trends.over(trends.ewma(history.column(path), 20), trends.ewma(history.column(path), 200))


def spikes(path: str, least: float, times: float, window: int) -> Measure:
    """How many of the last `window` steps were above `least` and above `times` the median of the 50 before them."""

    def measure(history: History) -> Column:
        values = history.column(path)
        high = (values > least) & (values > times * trends.median_before(values, 50))
        return trends.count_within(np.where(np.isnan(values), np.nan, high), window)

    return measure


def miscalibration(gap: str) -> Measure:
    """|mean r - 1|, 0 where it is within five standard errors of 1: var r = 1 + chi2 - (mean r)^2 over the tokens."""

    def measure(history: History) -> Column:
        ratio, chi2, tokens = (history.column(f"gaps.{gap}.{name}") for name in ("ratio_mean", "chi2", "tokens"))
        error = np.sqrt(np.maximum(1 + chi2 - ratio**2, 0) / tokens)
        return np.where(np.abs(ratio - 1) > 5 * error, np.abs(ratio - 1), 0 * ratio)

    return measure


def entropy_drop(path: str) -> Measure:
    """How far entropy fell, relative to 50 steps ago; 1 where it is below 0.2 nats."""

    def measure(history: History) -> Column:
        values = history.column(path)
        fall = -trends.change_over(values, 50)
        return np.where(values < 0.2, 1.0, np.where(np.isnan(values), np.nan, np.nan_to_num(fall)))

    return measure


K3: Final = "gaps.mismatch.k3"
LENGTH: Final = "sequence_length_mean"
ENTROPY: Final = "entropy_mean"
AGREEMENT: Final = "routing.mismatch.agreement"

RULES: Final = (
    Rule(
        "MismatchKL", "Engine and trainer disagree about the same tokens", (K3,), figure(K3), "mismatch k3",
        {"dense_bf16": 2e-3, "moe_bf16": 5e-3, "fp8": 5e-3, "fp4": 3e-2, "bitwise": 0.0},
        {"dense_bf16": 1e-2, "moe_bf16": 1.5e-2, "fp8": 2e-2, "fp4": 1e-1, "bitwise": 0.0},
        lasting(5, 3), "NeMo-RL docs 1e-3 and nightly gates 2e-3 to 1e-1; prime-rl new-model gate 0.015",
    ),
    Rule(
        "MismatchDrift", "The mismatch grows against the run's own beginning", (K3,), drift_from_baseline(K3),
        "EWMA20(k3) / median of steps 5..25", 3, 10, lasting(10),
        "vime issue 64: 0.011 to 0.036 in 30 steps; open-instruct issue 1473",
    ),
    Rule(
        "MismatchSpike", "The mismatch jumps for single steps", (K3,), spikes(K3, 1e-3, 10, 10),
        "of the last 10 steps, those with k3 > 1e-3 and k3 > 10 median50(k3)", 0, 2, lasting(1),
        "When Speed Kills Stability; 3 in 10 steps is a proposal",
    ),
    Rule(
        "ProbabilityDiff", "Probabilities of sampled tokens differ between engine and trainer",
        ("gaps.mismatch.probability_diff_mean",), figure("gaps.mismatch.probability_diff_mean"),
        "mean probability difference", 0.005, 0.01, lasting(5), "verl FAQ",
    ),
    Rule(
        "RatioTail", "Many tokens' ratios are beyond 2 or below 1/2", ("gaps.mismatch.tail_fraction",),
        figure("gaps.mismatch.tail_fraction"), "tail_fraction", 0.01, 0.1, lasting(5), "R3: 10 % is the danger line",
    ),
    Rule(
        "RatioNotCalibrated", "The mean ratio is not 1: the engine reports another distribution than it samples from",
        tuple(f"gaps.mismatch.{name}" for name in ("ratio_mean", "chi2", "tokens")), miscalibration("mismatch"),
        "|ratio_mean - 1| where its z > 5", 0.02, 0.05, lasting(3),
        "NeMo-RL tests; TRL issue 6789 (top-p renormalisation)",
    ),
    Rule(
        "LowEffectiveSampleSize", "Few tokens carry the weight of the batch", ("gaps.mismatch.ess",),
        figure("gaps.mismatch.ess"), "token ESS", 0.5, 0.3, lasting(5), "verl docs", above=False,
    ),
    Rule(
        "ChiSquare", "The variance of the ratios is large", ("gaps.mismatch.chi2",), figure("gaps.mismatch.chi2"),
        "token chi2", 0.1, 1, lasting(5), "verl docs",
    ),
    Rule(
        "TotalOffPolicy", "The data is off-policy in total", ("gaps.total.log_ratio_mean",),
        magnitude("gaps.total.log_ratio_mean"), "|mean total d|", 0.03, 0.1, lasting(5), "verl docs",
    ),
    Rule(
        "PerplexityGap", "Sequences are far apart in geometric ratio",
        ("gaps.mismatch.sequence.log_geometric_ratio_abs_mean",),
        figure("gaps.mismatch.sequence.log_geometric_ratio_abs_mean"), "mean |log geometric ratio|", 0.01, 0.05,
        lasting(5), "IcePop: training fails beyond 0.05",
    ),
    Rule(
        "Correlation", "Probabilities of engine and trainer do not go together",
        ("gaps.mismatch.probability_correlation",), figure("gaps.mismatch.probability_correlation"),
        "probability correlation", 0.99, 0.95, lasting(5), "MiniMax-M1", above=False,
    ),
    Rule(
        "MultiplicativeError", "Tokens' probabilities are off by a factor", ("gaps.mismatch.multiplicative_error",),
        figure("gaps.mismatch.multiplicative_error"), "multiplicative_error", 1.05, 1.1, lasting(5), "NeMo-RL",
    ),
    Rule(
        "StaleData", "Tokens were sampled many versions ago", ("policy_lag.max",), figure("policy_lag.max"),
        "largest version lag", 8, 16, lasting(1), "prime-rl and AReaL bounds",
    ),
    Rule(
        "EntropyCollapse", "The policy's entropy collapses", (ENTROPY,), entropy_drop(ENTROPY),
        "entropy down against 50 steps ago, as a share; 1 below 0.2 nats", 0.5, 0.99, lasting(10), "TIS blog",
    ),
    Rule(
        "LengthSurge", "Answers grow longer fast", (LENGTH,), surge(LENGTH), "EWMA20 / EWMA200 of mean length",
        1.3, 1.6, lasting(10), "Beyond Precision",
    ),
    Rule(
        "RoutingAgreement", "Engine and trainer choose different experts more often than when the run began",
        (AGREEMENT,), drop_from_baseline(AGREEMENT), "median of steps 5..25 less the share of experts in common",
        0.03, None, lasting(5), "proposal; R3 and GSPO measured 10 % of experts changed",
    ),
)  # fmt: skip
