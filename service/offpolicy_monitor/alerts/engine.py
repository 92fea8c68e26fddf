"""Evaluates rules: what each says at the newest step of a history, severity by severity.

A function of the history and the terms alone, so that a restart forgets nothing and fires nothing twice.
"""

import math
from collections.abc import Iterable, Iterator
from typing import Final, Literal, NamedTuple

from offpolicy_monitor.alerts.breaches import breach, value_at
from offpolicy_monitor.alerts.history import History
from offpolicy_monitor.alerts.rule import Rule, Severity, Terms

State = Literal["disabled", "silent", "quiet", "pending", "active"]

#: A figure that none of the last so many steps has is missing; one that a few steps lack is waited for.
PATIENCE: Final = 10


class RuleState(NamedTuple):
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
        return (RuleState(rule, severity, "disabled") for severity in rule.severities)
    missing = tuple(path for path in rule.inputs if history.lacks(path, PATIENCE))
    if missing:
        return (RuleState(rule, severity, "silent", missing=missing) for severity in rule.severities)
    index, value = _last(rule, history, terms)
    return (_state(rule, severity, history, terms, index, value) for severity in rule.severities)


def _last(rule: Rule, history: History, terms: Terms) -> tuple[int, float]:
    """The index and the number of the last step that has one; (-1, NaN) where none has one yet."""
    for index in range(len(history.steps) - 1, -1, -1):
        value = value_at(rule, history, terms, index)
        if not math.isnan(value):
            return index, value
    return -1, math.nan


def _state(rule: Rule, severity: Severity, history: History, terms: Terms, index: int, value: float) -> RuleState:
    limit = terms.limits(rule).get(severity)
    if limit is None:
        return RuleState(rule, severity, "disabled")
    if not rule.beyond(value, limit.threshold):
        said = None if math.isnan(value) else value
        return RuleState(rule, severity, "quiet", said, limit.threshold, limit.steps)
    count, first = breach(rule, limit, history, terms, index)
    state: State = "active" if count >= limit.steps else "pending"
    return RuleState(rule, severity, state, value, limit.threshold, limit.steps, count, history.steps[first])
