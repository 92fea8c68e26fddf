"""Breaches: at which steps a rule's number is beyond a threshold, and for how many steps without a break.

Steps without a value are passed over: they neither breach nor end a breach. Shapes: n steps.
"""

import numpy as np
from numpy.typing import NDArray

from offpolicy_monitor.alerts.history import Column, History
from offpolicy_monitor.alerts.rule import Rule, Severity, Terms

Flags = NDArray[np.bool_]


def measured(rule: Rule, history: History, terms: Terms) -> Column:
    """What the rule compares, [n]."""
    return history.once(rule.name, lambda: rule.measure(history, terms))


def lengths(rule: Rule, severity: Severity, history: History, terms: Terms) -> NDArray[np.int64]:
    """[n] for how many steps in a row, up to each step, the threshold has been breached; 0 without a threshold."""
    values, threshold = measured(rule, history, terms), rule.threshold_for(severity, terms)
    if threshold is None:
        return np.zeros(len(values), np.int64)
    known = ~np.isnan(values)
    breached = values[known] > threshold if rule.above else values[known] < threshold
    found = np.zeros(len(values), np.int64)
    found[known] = _run_lengths(breached)
    return found


def ever(rule: Rule, severity: Severity, history: History, terms: Terms) -> bool:
    """Whether the threshold was breached at any step: cheaper than how long it was, and most never are."""
    values, threshold = measured(rule, history, terms), rule.threshold_for(severity, terms)
    return threshold is not None and bool((values > threshold if rule.above else values < threshold).any())


def active(rule: Rule, severity: Severity, history: History, terms: Terms) -> Flags:
    """[n] whether the breach has lasted long enough at each step."""
    return np.asarray(lengths(rule, severity, history, terms) >= rule.steps_for(severity, terms))


def _run_lengths(flags: Flags) -> NDArray[np.int64]:
    """[n] bool -> how many in a row are set, up to each."""
    places = np.arange(1, len(flags) + 1)
    breaks = np.maximum.accumulate(np.where(flags, 0, places)) if len(flags) else places
    return np.asarray(places - breaks)
