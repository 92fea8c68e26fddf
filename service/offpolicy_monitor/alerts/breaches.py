"""Breaches: at which steps a rule's number is beyond a threshold, and how many of the last ones.

A breach that must last goes on over single steps that do not breach, as Limit says. Steps without a value are passed
over. What a rule compares at a step is noted in the history and measured once, and only where somebody asks: most rules
are quiet, and nobody looks at their past. Whether a step breaches is a byte, so that one search finds the next step
that does not, however long the breach.
"""

import math
from collections.abc import Sequence
from typing import Final

from offpolicy_monitor.alerts.history import UNMARKED, History, Marks, Notes
from offpolicy_monitor.alerts.rule import LONG, SPARE, Compared, Limit, Plan, Rule, Terms

#: What a step is to a severity of a rule: it does not breach, it does, it has no value.
BETTER, BREACHES, SILENT = range(3)
#: What is noted of a step that is grave enough for a critical alert.
GRAVE: Final = "{} is grave"


def value_at(rule: Rule, history: History, terms: Terms, index: int) -> float:
    """What the rule compares at a step; NaN where there is nothing to say."""
    notes = history.notes(rule.name)
    found = notes[index]
    if found is None:
        found = notes[index] = rule.compared(history, terms, index)
    return found


def breaches(rule: Rule, limit: Limit, history: History, terms: Terms, index: int) -> bool:
    """Whether a step is beyond a threshold, and grave enough for it."""
    return _marked(_marks(rule, limit, history), rule, limit, history, terms, index) == BREACHES


def _marks(rule: Rule, limit: Limit, history: History) -> Marks:
    return history.marks(f"{rule.name} {limit.severity}")


def _marked(marks: Marks, rule: Rule, limit: Limit, history: History, terms: Terms, index: int) -> int:
    """What a step is to this severity, and marked as from now on."""
    if marks[index] == UNMARKED:
        value = value_at(rule, history, terms, index)
        if value != value:
            marks[index] = SILENT
        elif rule.beyond(value, limit.threshold) and _is_grave(rule, limit, history, terms, index):
            marks[index] = BREACHES
        else:
            marks[index] = BETTER
    return marks[index]


def _is_grave(rule: Rule, limit: Limit, history: History, terms: Terms, index: int) -> bool:
    grave = _grave(rule, limit)
    if grave is None:
        return True
    notes = history.notes(GRAVE.format(rule.name))
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
    No more than `most` are counted, and steps before these are not measured.
    """
    marks = _marks(rule, limit, history)
    if _marked(marks, rule, limit, history, terms, index) == SILENT:
        return 0, index
    begin, end, better = 0, index + 1, list[int]()
    while (at := max(marks.rfind(BETTER, 0, end), marks.rfind(UNMARKED, 0, end))) >= 0:
        if marks[at] == UNMARKED:
            if most is not None and marks.count(BREACHES, at, index + 1) >= most:
                begin = at + 1
                break
            _marked(marks, rule, limit, history, terms, at)
            continue
        end = at
        better.append(index - at - marks.count(SILENT, at, index))
        if len(better) > limit.spare and better[-1] - better[-1 - limit.spare] < limit.within:
            begin = at + 1
            break
    count = marks.count(BREACHES, begin, index + 1)
    return (count if most is None else min(count, most)), marks.find(BREACHES, begin) if count else index


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
