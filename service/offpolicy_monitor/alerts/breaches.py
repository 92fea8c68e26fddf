"""Breaches: at which steps a rule's number is beyond a threshold, and how many of the last ones.

A breach that must last goes on over single steps that do not breach, as Limit says. Steps without a value are passed
over. What a rule compares at a step is noted in the history and measured once, and only where somebody asks: most rules
are quiet, and nobody looks at their past.
"""

import math
from collections.abc import Sequence

from offpolicy_monitor.alerts.history import History, Notes
from offpolicy_monitor.alerts.rule import LONG, SPARE, Compared, Limit, Plan, Rule, Terms


def value_at(rule: Rule, history: History, terms: Terms, index: int) -> float:
    """What the rule compares at a step; NaN where there is nothing to say."""
    notes = history.notes(rule.name)
    found = notes[index]
    if found is None:
        found = notes[index] = rule.compared(history, terms, index)
    return found


def breaches(rule: Rule, limit: Limit, history: History, terms: Terms, index: int) -> bool:
    """Whether a step is beyond a threshold, and grave enough for it."""
    if not rule.beyond(value_at(rule, history, terms, index), limit.threshold):
        return False
    grave = _grave(rule, limit)
    if grave is None:
        return True
    notes = history.notes(f"{rule.name} is grave")
    found = notes[index]
    if found is None:
        found = notes[index] = grave(history, terms, index)
    return found > 0


def _grave(rule: Rule, limit: Limit) -> Compared | None:
    """What must hold beside being beyond the threshold; None where that is enough, as of a run's own threshold."""
    return rule.grave if limit.severity == "critical" and not limit.own else None


def lately(rule: Rule, values: Notes, index: int) -> float:
    """The worst number of the steps before that a breach may miss; infinitely bad where nobody has measured it yet."""
    worst = math.inf if rule.above else -math.inf
    found = -worst
    for value in values[max(0, index - SPARE) : max(0, index)]:
        if value is None or value != value:
            return worst
        if rule.beyond(value, found):
            found = value
    return found


def may_breach(plan: Plan, values: Notes, index: int) -> bool:
    """Whether any severity of a rule may breach at a step that is measured, or go on over it."""
    _, _, _, _, spare, low, high = plan
    # Written out, and not by rule.beyond and lately: it is asked of every rule at every step.
    for value in values[index - spare if index > spare else 0 : index + 1]:
        if value is None or not low <= value <= high:
            return True
    return False


def may_stand(rule: Rule, limit: Limit, before: float) -> bool:
    """Whether a breach may stand at a step that does not breach, by the worst of the steps before it."""
    return limit.steps >= LONG and rule.beyond(before, limit.threshold)


def breach(
    rule: Rule, limit: Limit, history: History, terms: Terms, index: int, most: int | None = None
) -> tuple[int, int]:
    """How many steps have breached the threshold, up to this one, and the index of the first.

    It goes back until more than `limit.spare` of `limit.within` steps do not breach. 0 where this step has no value.
    No more than `most` are counted.
    """
    count, first, seen, better = 0, index, 0, list[int]()
    values, threshold, must_be_grave = history.notes(rule.name), limit.threshold, _grave(rule, limit) is not None
    for number in range(index, -1, -1):
        value = values[number]
        if value is None:
            value = value_at(rule, history, terms, number)
        if value != value and seen:
            continue
        if count == most or value != value:
            break
        beyond = value > threshold if rule.above else value < threshold
        if beyond and (not must_be_grave or breaches(rule, limit, history, terms, number)):
            count, first = count + 1, number
        else:
            better.append(seen)
            if len(better) > limit.spare and seen - better[-1 - limit.spare] < limit.within:
                break
        seen += 1
    return count, first


def active(rules: Sequence[Rule], history: History, terms: Terms, steps: range) -> bool:
    """Whether a breach of one of these rules, of whatever severity, had lasted long enough at one of these steps.

    Of those that the run wants.
    """
    notes = history.notes(f"{' or '.join([rule.name for rule in rules])} is active")
    lately = notes[steps.start : steps.stop]
    if None in lately:
        for at in range(lately.index(None), len(lately)):
            if lately[at] is None:
                index = steps.start + at
                lately[at] = notes[index] = float(any([_is_active(rule, history, terms, index) for rule in rules]))
    return any(lately)


def _is_active(rule: Rule, history: History, terms: Terms, index: int) -> bool:
    plan = terms.plan(rule)
    if not plan.enabled:
        return False
    values = history.notes(rule.name)
    value = values[index]
    if value is None:
        value = values[index] = rule.compared(history, terms, index)
    if value != value or not may_breach(plan, values, index):
        return False
    return any([lasts(rule, limit, history, terms, index) for limit in plan.limits.values()])


def lasts(rule: Rule, limit: Limit, history: History, terms: Terms, index: int) -> bool:
    """Whether a breach has lasted long enough at a step."""
    values = history.notes(rule.name)
    if not breaches(rule, limit, history, terms, index) and not may_stand(rule, limit, lately(rule, values, index)):
        return False
    return breach(rule, limit, history, terms, index, limit.steps)[0] >= limit.steps
