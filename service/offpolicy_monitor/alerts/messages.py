"""What an alert says to who is paged: one sentence with the figure, what it is measured against, and since when."""

from offpolicy_monitor.alerts.engine import RuleState


def message(state: RuleState) -> str:
    """`Engine and trainer disagree about the same tokens: mismatch k3 is 0.012 (warning above 0.01) since step 12.`"""
    side = "above" if state.rule.above else "below"
    value = "not known" if state.value is None else f"{state.value:.3g}"
    limit = "" if state.threshold is None else f" ({state.severity} {side} {state.threshold:.3g})"
    since = "" if state.since_step is None else f", since step {state.since_step}"
    return f"{state.rule.summary}: {state.rule.expression} is {value}{limit}{since}."
