"""Counts breaches: what each rule says at the newest step of a history, and for how many steps it has said so.

A pure function of the history, so that a restart forgets nothing and fires nothing twice.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from offpolicy_monitor.alerts.history import Column, History
from offpolicy_monitor.alerts.rules import Rule

Severity = Literal["warning", "critical"]
Flags = NDArray[np.bool_]
State = Literal["silent", "quiet", "pending", "active"]


@dataclass(frozen=True)
class RuleState:
    """A rule at the newest step.

    `silent`: a figure it needs is not there, and `missing` names it; `quiet`: no breach; `pending`: a breach that has
    not lasted long enough; `active`: it has. `severity` is the worst that is active, else the worst that is pending;
    `breach_steps` and `since_step` tell how long that threshold has been breached without a break.
    """

    rule: Rule
    state: State
    severity: Severity | None = None
    value: float | None = None
    threshold: float | None = None
    breach_steps: int = 0
    since_step: int | None = None
    missing: tuple[str, ...] = ()


def evaluate(rules: Iterable[Rule], history: History, profile: str) -> list[RuleState]:
    """The state of every rule at the newest step of the history, under a profile of rules.PROFILES."""
    return [_state(rule, history, profile) for rule in rules]


def _state(rule: Rule, history: History, profile: str) -> RuleState:
    missing = tuple(path for path in rule.inputs if not len(history.steps) or np.isnan(history.column(path)[-1]))
    if missing:
        return RuleState(rule, "silent", missing=missing)
    values = rule.measure(history)
    if np.isnan(values[-1]):
        return RuleState(rule, "quiet")
    found = [state for severity in ("critical", "warning") if (state := _of(rule, severity, values, history, profile))]
    active = [state for state in found if state.state == "active"]
    return next(iter(active or found), RuleState(rule, "quiet", value=float(values[-1])))


def _of(rule: Rule, severity: Severity, values: Column, history: History, profile: str) -> RuleState | None:
    """The state of one threshold; None where it is not breached at the newest step."""
    threshold = rule.threshold(severity, profile)
    if threshold is None:
        return None
    breached = values > threshold if rule.above else values < threshold
    lasting = _lasting(breached, np.isnan(values))
    if not lasting:
        return None
    state: State = "active" if lasting >= rule.steps[severity] else "pending"
    first = int(np.flatnonzero(breached)[-lasting])
    return RuleState(rule, state, severity, float(values[-1]), threshold, lasting, history.steps[first])


def _lasting(breached: Flags, unknown: Flags) -> int:
    """Breaching steps up to the newest without one in between that does not breach; steps without a value are none."""
    count = 0
    for breach, nothing in zip(breached[::-1].tolist(), unknown[::-1].tolist(), strict=True):
        if nothing:
            continue
        if not breach:
            break
        count += 1
    return count
