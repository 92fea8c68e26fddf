"""Breaches: at which steps a rule's number is beyond a threshold, and for how many steps without a break.

Steps without a value are passed over: they neither breach nor end a breach. What a rule compares at a step is noted in
the history and measured once, and only where somebody asks: most rules are quiet, and nobody looks at their past.
"""

import math

from offpolicy_monitor.alerts.history import History
from offpolicy_monitor.alerts.rule import Limit, Rule, Terms


def value_at(rule: Rule, history: History, terms: Terms, index: int) -> float:
    """What the rule compares at a step; NaN where there is nothing to say."""
    notes = history.notes(rule.name)
    found = notes[index]
    if found is None:
        found = notes[index] = rule.measure(history, terms, index)
    return found


def breach(
    rule: Rule, limit: Limit, history: History, terms: Terms, index: int, most: int | None = None
) -> tuple[int, int]:
    """For how many steps in a row, up to this one, the threshold has been breached, and the index of the first.

    0 where this step has no value. No more than `most` are counted.
    """
    count, first = 0, index
    for number in range(index, -1, -1):
        value = value_at(rule, history, terms, number)
        if math.isnan(value) and count:
            continue
        if count == most or not rule.beyond(value, limit.threshold):
            break
        count, first = count + 1, number
    return count, first


def active(rule: Rule, history: History, terms: Terms, steps: range) -> bool:
    """Whether a breach, of whatever severity, had lasted long enough at one of these steps."""
    notes = history.notes(f"{rule.name} is active")
    if None in notes[steps.start : steps.stop]:
        for index in steps:
            if notes[index] is None:
                notes[index] = float(_is_active(rule, history, terms, index))
    return any(notes[steps.start : steps.stop])


def _is_active(rule: Rule, history: History, terms: Terms, index: int) -> bool:
    value = value_at(rule, history, terms, index)
    breached = [limit for limit in terms.limits(rule).values() if rule.beyond(value, limit.threshold)]
    return any([lasts(rule, limit, history, terms, index) for limit in breached])


def lasts(rule: Rule, limit: Limit, history: History, terms: Terms, index: int) -> bool:
    """Whether a breach has lasted long enough at a step."""
    return breach(rule, limit, history, terms, index, limit.steps)[0] >= limit.steps
