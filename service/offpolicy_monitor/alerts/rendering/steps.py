"""The rules on training steps as Prometheus alerts: one a rule and severity, rendered from RULES.

The service counts breaching steps and says how many make an alert (a run may override that), so PromQL only compares
the two: thresholds, profiles and overrides are not known here.
"""

from offpolicy_monitor.alerts.rendering.alert import Alert, latest, look_up, of_unfinished
from offpolicy_monitor.alerts.rule import Rule
from offpolicy_monitor.alerts.rules import RULES

OF_ALERT = ("run", "alert", "severity", "job", "instance")


def step_alerts() -> list[Alert]:
    """Every rule at every severity that it has under any profile."""
    return [_alert(rule, severity) for rule in RULES for severity in rule.severities]


def _alert(rule: Rule, severity: str) -> Alert:
    breached = latest(f'offpolicy_alert_breach_steps{{alert="{rule.name}",severity="{severity}"}}')
    return Alert(
        rule.name,
        severity,
        of_unfinished(f"{breached}\n>= {latest('offpolicy_alert_required_steps')}"),
        f"{rule.summary} (run {{{{ $labels.run }}}})",
        _description(rule, severity),
    )


def _description(rule: Rule, severity: str) -> str:
    value, threshold = (look_up(f"offpolicy_alert_{name}", *OF_ALERT) for name in ("value", "threshold"))
    step = look_up("offpolicy_step", "run", "job", "instance", form="%.0f")
    side = "above" if rule.above else "below"
    return (
        f"Run {{{{ $labels.run }}}}, step {step}: {rule.expression} is {value}, {severity} {side} {threshold}; "
        "breached for {{ $value }} step(s) in a row."
    )
