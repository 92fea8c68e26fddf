"""Rules on time: a run that has fallen silent, a step that stays incomplete. Both are measured in the run's own steps.

Pure functions of times that are given; nothing here asks what time it is.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from offpolicy_monitor.alerts.engine import State
from offpolicy_monitor.alerts.messages import told_by_clock
from offpolicy_monitor.alerts.rule import Severity, Terms

#: What a step is taken to last, seconds, while a run has begun too few to tell: the longest ones of the field do.
UNKNOWN_STEP: Final = 1_800


@dataclass(frozen=True)
class Timing:
    """Of one run, seconds: `step_seconds` is the median from one step's first shard to the next one's, None with fewer
    than two; `silence` since its last batch; `open_for` since the first shard of its oldest incomplete step, if any.
    """

    step_seconds: float | None
    silence: float
    open_for: float | None


@dataclass(frozen=True)
class WallClockRule:
    """Breached where `compared` is beyond so many median step times and `least` seconds; a finished run never is.

    `times` by severity; an override of a run gives other ones. Rules that it `follows` speak for it (alerts.roots).
    """

    name: str
    summary: str
    expression: str
    compared: Callable[[Timing], float | None]
    times: Mapping[Severity, float]
    least: float
    source: str
    follows: tuple[str, ...] = ()

    @property
    def severities(self) -> tuple[Severity, ...]:
        """Those it has, from mild to worst."""
        return tuple(self.times)


@dataclass(frozen=True)
class WallClockState:
    """One severity of a rule now: `value` and `threshold` in seconds."""

    rule: WallClockRule
    severity: Severity
    state: State
    value: float | None = None
    threshold: float | None = None
    message: str | None = None


def _silence(timing: Timing) -> float | None:
    return timing.silence


def _open_for(timing: Timing) -> float | None:
    return timing.open_for


WALL_CLOCK_RULES: Final = (
    WallClockRule(
        "IncompleteStep", "A step still lacks shards: a rank is dead, or its posts fail",
        "age of the oldest incomplete step > 3 median step times, at least 60 s", _open_for, {"warning": 3}, 60,
        "proposal", ("RunSilent",),
    ),
    WallClockRule(
        "RunSilent", "No batch has come for several steps' time",
        "time since the last batch > 3 (critical: 10) median step times, at least 600 s", _silence,
        {"warning": 3, "critical": 10}, 600, "proposal",
    ),
)  # fmt: skip


def evaluate(rules: Iterable[WallClockRule], timing: Timing, terms: Terms) -> list[WallClockState]:
    """The state of every severity of every rule, from mild to worst within a rule."""
    return [_state(rule, severity, timing, terms) for rule in rules for severity in rule.severities]


def _state(rule: WallClockRule, severity: Severity, timing: Timing, terms: Terms) -> WallClockState:
    times = terms.overrides.get(rule.name, {}).get(severity, rule.times[severity])
    if times is None or not terms.enabled(rule.name):
        return WallClockState(rule, severity, "disabled")
    usual = UNKNOWN_STEP if timing.step_seconds is None else timing.step_seconds
    threshold = max(times * usual, rule.least)
    value = rule.compared(timing)
    if value is None or not value > threshold:
        return WallClockState(rule, severity, "quiet", value, threshold)
    return WallClockState(rule, severity, "active", value, threshold, told_by_clock(rule.summary, value, threshold))
