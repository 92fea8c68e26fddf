"""Evaluates rules: what each says at the newest step of a history, severity by severity.

A pure function of the history, so that a restart forgets nothing and fires nothing twice.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from offpolicy_monitor.alerts.breaches import lengths, measured
from offpolicy_monitor.alerts.history import Column, History
from offpolicy_monitor.alerts.rule import Rule, Severity, Terms

State = Literal["disabled", "silent", "quiet", "pending", "active"]

#: A figure that none of the last so many steps has is missing; one that a few steps lack is waited for.
PATIENCE: Final = 10


@dataclass(frozen=True)
class RuleState:
    """One severity of a rule at the newest step.

    `disabled`: the run wants no such rule or threshold; `silent`: a figure it needs is not there, and `missing` names
    it; `quiet`: no breach; `pending`: a breach that has not lasted `required_steps` yet; `active`: it has. `value` is
    the last known one; `breach_steps` and `since_step` tell how long the breach has lasted without a break.
    """

    rule: Rule
    severity: Severity
    state: State
    value: float | None = None
    threshold: float | None = None
    required_steps: int = 1
    breach_steps: int = 0
    since_step: int | None = None
    missing: tuple[str, ...] = ()


def evaluate(rules: Iterable[Rule], history: History, terms: Terms) -> list[RuleState]:
    """The state of every severity of every rule at the newest step, from mild to worst within a rule."""
    return [state for rule in rules for state in _states(rule, history, terms)]


def _states(rule: Rule, history: History, terms: Terms) -> Iterator[RuleState]:
    if not terms.enabled(rule.name):
        yield from (RuleState(rule, severity, "disabled") for severity in rule.severities)
        return
    missing = tuple(path for path in rule.inputs if history.lacks(path, PATIENCE))
    if missing:
        yield from (RuleState(rule, severity, "silent", missing=missing) for severity in rule.severities)
        return
    last, value = _last(measured(rule, history, terms))
    for severity in rule.severities:
        yield _state(rule, severity, history, terms, last, value)


def _last(values: Column) -> tuple[int, float]:
    """The place and the value of the last number; (-1, NaN) where there is none yet."""
    known = np.flatnonzero(~np.isnan(values)) if len(values) and np.isnan(values[-1]) else range(len(values))
    return (int(known[-1]), float(values[known[-1]])) if len(known) else (-1, np.nan)


def _state(rule: Rule, severity: Severity, history: History, terms: Terms, last: int, value: float) -> RuleState:
    threshold, required = rule.threshold_for(severity, terms), rule.steps_for(severity, terms)
    if threshold is None:
        return RuleState(rule, severity, "disabled")
    if last < 0:
        return RuleState(rule, severity, "quiet", None, threshold, required)
    if not (value > threshold if rule.above else value < threshold):
        return RuleState(rule, severity, "quiet", value, threshold, required)
    run_lengths = lengths(rule, severity, history, terms)
    lasting = int(run_lengths[last])
    state: State = "active" if lasting >= required else "pending"
    # The run began at the last place before this one where its length was 1.
    first = int(np.flatnonzero(run_lengths[: last + 1] == 1)[-1])
    return RuleState(rule, severity, state, value, threshold, required, lasting, history.steps[first])
