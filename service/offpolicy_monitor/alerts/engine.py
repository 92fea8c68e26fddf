"""Evaluates rules: what each says at the newest step of a history, severity by severity.

A function of the history and the terms alone, so that a restart forgets nothing and fires nothing twice.
"""

import math
from collections.abc import Iterable
from typing import Final, Literal, NamedTuple

from offpolicy_monitor.alerts.breaches import breach, value_at
from offpolicy_monitor.alerts.history import History
from offpolicy_monitor.alerts.rule import Limit, Plan, Rule, Severity, Terms

State = Literal["disabled", "silent", "quiet", "pending", "active"]

#: A figure that none of the last so many steps has is missing; one that a few steps lack is waited for.
PATIENCE: Final = 10
#: Steps of a breach whose worst value is looked for, more than are judged at once; what was before, its episode has.
UNSEEN: Final = 64


class RuleState(NamedTuple):
    """One severity of a rule at the newest step.

    `disabled`: the run wants no such rule or threshold; `silent`: a figure it needs is not there, and `missing` names
    it; `quiet`: no breach; `pending`: a breach that has not lasted `required_steps` yet; `active`: it has. `value` is
    the last known one; `breach_steps` and `since_step` tell how long the breach has lasted without a break, `peak` is
    the worst value of its last UNSEEN steps.
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
    peak: float | None = None


def evaluate(rules: Iterable[Rule], history: History, terms: Terms) -> list[RuleState]:
    """The state of every severity of every rule at the newest step, from mild to worst within a rule."""
    known = history.known(PATIENCE)
    return [state for rule in rules for state in _states(terms.plan(rule), history, terms, known)]


def _states(plan: Plan, history: History, terms: Terms, known: frozenset[str]) -> list[RuleState]:
    """`known` are the figures that are there."""
    rule, states = plan.rule, []
    if not plan.enabled:
        return _without_number(plan, ())
    if not known.issuperset(rule.inputs):
        return _without_number(plan, tuple([path for path in rule.inputs if path not in known]))
    index, value = _last(rule, history, terms)
    said = None if math.isnan(value) else value
    for severity, limit in plan.severities:
        if limit is None:
            states.append(RuleState(rule, severity, "disabled"))
        elif rule.beyond(value, limit.threshold):
            states.append(_breach(rule, severity, limit, history, terms, index, value))
        else:
            states.append(RuleState(rule, severity, "quiet", said, limit.threshold, limit.steps))
    return states


def _without_number(plan: Plan, missing: tuple[str, ...]) -> list[RuleState]:
    """Silent for what is missing, or else disabled; the same at every step."""
    found: list[RuleState] | None = plan.said.get(missing)
    if found is None:
        found = plan.said[missing] = [
            _silent(plan.rule, severity, limit, missing) if missing else RuleState(plan.rule, severity, "disabled")
            for severity, limit in plan.severities
        ]
    return found


def _silent(rule: Rule, severity: Severity, limit: Limit | None, missing: tuple[str, ...]) -> RuleState:
    """It says nothing; its threshold can be drawn all the same."""
    return RuleState(rule, severity, "silent", None, None if limit is None else limit.threshold, missing=missing)


def _last(rule: Rule, history: History, terms: Terms) -> tuple[int, float]:
    """The index and the number of the last step that has one; (-1, NaN) where none has one yet."""
    for index in range(len(history.steps) - 1, -1, -1):
        value = value_at(rule, history, terms, index)
        if not math.isnan(value):
            return index, value
    return -1, math.nan


def _breach(
    rule: Rule, severity: Severity, limit: Limit, history: History, terms: Terms, index: int, value: float
) -> RuleState:
    count, first = breach(rule, limit, history, terms, index)
    state: State = "active" if count >= limit.steps else "pending"
    lately = history.notes(rule.name)[max(first, index + 1 - UNSEEN) : index + 1]
    noted = [value for value in lately if value is not None and value == value]
    since = history.steps[first]
    peak = rule.worst(noted)
    return RuleState(rule, severity, state, value, limit.threshold, limit.steps, count, since, peak=peak)
