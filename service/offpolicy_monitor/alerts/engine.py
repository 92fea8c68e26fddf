"""Evaluates rules: what each says at the newest step of a history, severity by severity.

A function of the history and the terms alone, so that a restart forgets nothing and fires nothing twice.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from typing import Final, Literal, NamedTuple

from offpolicy_monitor.alerts.breaches import breach, breaches, lately, may_breach, may_stand, value_at
from offpolicy_monitor.alerts.history import MISMATCH, History, Notes
from offpolicy_monitor.alerts.messages import INCLUDED, told
from offpolicy_monitor.alerts.rule import Limit, Plan, Rule, Severity, Terms, of_total

State = Literal["disabled", "silent", "quiet", "pending", "active"]

#: A figure that none of the last so many steps has is missing; one that a few steps lack is waited for.
PATIENCE: Final = 10
#: How many versions old the oldest token is.
LAG: Final = "policy_lag.max"
#: Steps of a breach whose worst value is looked for, more than are judged at once; what was before, its episode has.
UNSEEN: Final = 64


class RuleState(NamedTuple):
    """One severity of a rule at the newest step.

    `disabled`: the run wants no such rule or threshold; `silent`: a figure it needs is not there, and `missing` names
    it; `quiet`: no breach; `pending`: a breach that has not lasted `required_steps` yet; `active`: it has. `value` is
    the last known one; `breach_steps` and `since_step` tell how many steps have breached and since when, `peak` is
    the worst value of its last UNSEEN steps. `message` is for people, of a breach alone.
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
    message: str | None = None


def evaluate(rules: Iterable[Rule], history: History, terms: Terms) -> list[RuleState]:
    """The state of every severity of every rule at the newest step, from mild to worst within a rule."""
    return [state for judged in judge(rules, history, terms) for state in states_of(judged)]


class Outlook(NamedTuple):
    """What a rule may say while the same figures are there.

    missing   the figures of mismatch that it lacks, and the total gap stands in for
    says      its states where it has no number, which are the same at every step; else None
    pieces    of the text of its states at rest, between which their value stands; kept by whoever shows them
    """

    plan: Plan
    missing: tuple[str, ...]
    says: Sequence[RuleState] | None
    pieces: list[bytes]


#: A rule at the newest step, its value, and its states where it may breach: else, as most are, it is at rest, and its
#: states are made where somebody asks for them.
Judged = tuple[Outlook, float | None, Sequence[RuleState] | None]


def judge(rules: Iterable[Rule], history: History, terms: Terms) -> list[Judged]:
    """Every rule at the newest step."""
    known = history.known(PATIENCE)
    outlooks, found = terms.of_known(known), list[Judged]()
    for rule in rules:
        outlook: Outlook | None = outlooks.get(rule.name)
        if outlook is None:
            outlook = outlooks[rule.name] = _outlook(terms.plan(rule), known)
        plan, missing, says, _ = outlook
        if says is not None:
            found.append((outlook, None, None))
        elif missing:
            found.append(_judged(outlook, history.in_total, terms))
        else:
            # As for most rules at most steps; the value of others is not measured again.
            values = history.notes(rule.name)
            value = values[-1]
            if value is None:
                value = values[-1] = rule.compared(history, terms, len(values) - 1)
            at_rest = not may_breach(plan, values, len(values) - 1)
            found.append((outlook, value, None) if at_rest else _judged(outlook, history, terms))
    return found


def states_of(judged: Judged) -> Sequence[RuleState]:
    """From mild to worst."""
    outlook, value, found = judged
    if found is None:
        found = outlook.says
    return [_quiet(outlook.plan.rule, *of, value) for of in outlook.plan.severities] if found is None else found


def _outlook(plan: Plan, known: frozenset[str]) -> Outlook:
    """`known` are the figures that are there."""
    rule = plan.rule
    if not plan.enabled:
        return Outlook(plan, (), [RuleState(rule, severity, "disabled") for severity in rule.severities], [])
    missing = tuple([path for path in rule.inputs if path not in known])
    if not missing or _total_stands_in(missing, known):
        return Outlook(plan, missing, None, [])
    return Outlook(plan, missing, [_silent(rule, severity, limit, missing) for severity, limit in plan.severities], [])


def _judged(outlook: Outlook, history: History, terms: Terms) -> Judged:
    """Of a rule that has a number."""
    plan, missing, _, _ = outlook
    rule, states = plan.rule, list[RuleState]()
    warns_at_most = history.stands_in and _may_be_stale(history)
    values = history.notes(rule.name)
    index, value = _last(rule, values, history, terms)
    said = None if value != value else value
    if said is not None and not warns_at_most and not may_breach(plan, values, index):
        return outlook, said, None
    before = lately(rule, values, index) if plan.spare else math.nan
    # What is said of a breach is the same of both severities.
    explain = None if rule.explain is None else cache(partial(rule.explain, history, terms, index))
    for severity, limit in plan.severities:
        if limit is None:
            states.append(_quiet(rule, severity, limit, said))
        elif warns_at_most and severity == "critical":
            states.append(_silent(rule, severity, limit, missing))
        elif (rule.beyond(value, limit.threshold) or may_stand(rule, limit, before)) and (
            found := _breach(rule, limit, history, terms, index, explain)
        ):
            states.append(found)
        else:
            states.append(_quiet(rule, severity, limit, said))
    return outlook, said, states


def _quiet(rule: Rule, severity: Severity, limit: Limit | None, value: float | None) -> RuleState:
    """No breach; disabled where it is not in force."""
    if limit is None:
        return RuleState(rule, severity, "disabled")
    return RuleState(rule, severity, "quiet", value, limit.threshold, limit.steps)


def has_total_alone(history: History) -> bool:
    """Whether the run has no mismatch at all, so that rules on it look at the total gap where they can."""
    return not any(path.startswith(MISMATCH) for path in history.known(PATIENCE))


def _total_stands_in(missing: Iterable[str], known: frozenset[str]) -> bool:
    """Whether the run has no mismatch at all, and the total gap has all that a rule lacks."""
    return all(of_total(path) != path and of_total(path) in known for path in missing) and not any(
        path.startswith(MISMATCH) for path in known
    )


def _may_be_stale(history: History) -> bool:
    """Whether the total gap may be staleness: data of an older version, or of one that nobody told."""
    lags = [lag for lag in history.column(LAG)[-PATIENCE:] if lag == lag]
    return not lags or max(lags) > 0


def _silent(rule: Rule, severity: Severity, limit: Limit | None, missing: tuple[str, ...]) -> RuleState:
    """It says nothing; its threshold can be drawn all the same."""
    return RuleState(rule, severity, "silent", None, None if limit is None else limit.threshold, missing=missing)


def _last(rule: Rule, values: Notes, history: History, terms: Terms) -> tuple[int, float]:
    """The index and the number of the last step that has one, as noted in `values`; (-1, NaN) where none has yet."""
    for index in range(len(values) - 1, -1, -1):
        value = values[index]
        if value is None:
            value = values[index] = rule.compared(history, terms, index)
        if value == value:
            return index, value
    return -1, math.nan


def _breach(
    rule: Rule, limit: Limit, history: History, terms: Terms, index: int, explain: Callable[[], str] | None
) -> RuleState | None:
    """A breach that goes on at a step; one that has lasted does so over a better step, a young one does not."""
    count, first = breach(rule, limit, history, terms, index)
    if count < limit.steps and not breaches(rule, limit, history, terms, index):
        return None
    state: State = "active" if count >= limit.steps else "pending"
    seen = history.notes(rule.name)[max(first, index + 1 - UNSEEN) : index + 1]
    peak = rule.worst([value for value in seen if value is not None and value == value])
    since, value = history.steps[first], value_at(rule, history, terms, index)
    said = told(rule, limit, value, since) if explain is None else explain()
    message = f"{said} {INCLUDED}" if history.stands_in else said
    numbers = value, limit.threshold, limit.steps, count, since
    return RuleState(rule, limit.severity, state, *numbers, peak=peak, message=message)
