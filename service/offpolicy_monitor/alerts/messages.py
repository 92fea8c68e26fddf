"""What an alert says to who is paged at night: one sentence with the figure, its limit, and since when.

Pure; the figure's words are the rule's.
"""

from typing import Final

from offpolicy_monitor.alerts.rule import Limit, Rule

#: What is added where the total gap stands in for mismatch.
INCLUDED: Final = "Measured against the current policy, since the run sends no old_logprobs: staleness is included."


def told(rule: Rule, limit: Limit, value: float, since: int) -> str:
    """`Engine and trainer disagree about the same tokens: mismatch k3 is 0.012, above 0.01, since step 12.`"""
    side = "above" if rule.above else "below"
    figure = rule.told or rule.expression
    return (
        f"{rule.summary}: {figure} is {value:.3g}, {limit.severity} {side} {limit.threshold:.3g}, since step {since}."
    )


def told_by_clock(summary: str, value: float, threshold: float) -> str:
    """The same of a rule on time: `No batch has come for several steps' time: 700 s, more than 600 s.`"""
    return f"{summary}: {value:,.0f} s, more than {threshold:,.0f} s."
