"""The rules on training steps as Prometheus alerts: one per rule and severity, rendered from RULES.

The service counts breaching steps and says whether they are enough, so thresholds, steps, profiles and overrides are
not known here. What is not breached has no `active`, so the count says when what was seen of it last is over.
"""

from offpolicy_monitor.alerts.rule import Rule
from offpolicy_monitor.alerts.rules import RULES

from scripts.prometheus.alert import Alert, latest, look_up, of_unfinished

OF_ALERT = ("run", "alert", "severity", "job", "instance")


def step_alerts() -> list[Alert]:
    """Every rule at every severity that it has under any profile."""
    return [_alert(rule, severity) for rule in RULES for severity in rule.severities]


def _alert(rule: Rule, severity: str) -> Alert:
    of_rule = f'{{alert="{rule.name}",severity="{severity}"}}'
    breached, active = (latest(f"offpolicy_alert_{name}{of_rule}") for name in ("breach_steps", "active"))
    return Alert(
        rule.name,
        severity,
        of_unfinished(f"{breached} > 0\nand {active} == 1"),
        f"{rule.summary} (run {{{{ $labels.run }}}})",
        _description(rule, severity),
    )


def _description(rule: Rule, severity: str) -> str:
    value, threshold = (
        look_up(f"offpolicy_alert_{name}", *OF_ALERT, otherwise="(see the page)") for name in ("value", "threshold")
    )
    step = look_up("offpolicy_step", "run", "job", "instance", form="%.0f")
    side = "above" if rule.above else "below"
    return (
        f"Run {{{{ $labels.run }}}}, step {step}: {rule.expression} is {value}, {severity} {side} {threshold}; "
        "breached at {{ $value }} step(s)."
    )
