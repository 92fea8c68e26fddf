"""The rules on training steps as Prometheus alerts: one per rule and severity, rendered from RULES.

The service counts breaching steps and says whether they are enough, so thresholds, steps, profiles and overrides are
not known here. What is not breached has no `active`, so the count says when what was seen of it last is over.
"""

from typing import Final

from offpolicy_monitor.alerts.rule import Rule
from offpolicy_monitor.alerts.rules import RULES

from scripts.prometheus.alert import OF_RUN, Alert, latest, look_up, of_unfinished

#: The alert that mutes others.
EVIDENCE: Final = "Evidence"
OF_ALERT = ("run", "alert", "severity", "job", "instance")


def step_alerts() -> list[Alert]:
    """What mutes the evidence of a root, first; then every rule at every severity that it has under any profile."""
    return [_evidence(), *(_alert(rule, severity) for rule in RULES for severity in rule.severities)]


def _evidence() -> Alert:
    """For each active alert that does not speak for its run, one that mutes it, with its name and severity as labels.

    Of a service that does not say which ones speak, nothing is muted.
    """
    active, root = latest("offpolicy_alert_active"), latest("offpolicy_alert_root")
    unmuted = f"unless on ({OF_RUN}, alert, severity) {root} == 1\nand on ({OF_RUN}) {root}"
    return Alert(
        EVIDENCE,
        "none",
        f'label_replace(\n{active} == 1\n{unmuted},\n"of", "$1", "severity", "(.*)")',
        "Another alert of run {{ $labels.run }} speaks for {{ $labels.alert }}",
        "For Alertmanager's inhibition alone, to be sent to nobody: while it fires, people are not told of "
        "{{ $labels.alert }} ({{ $labels.of }}) of run {{ $labels.run }}, which is evidence of what they are told of.",
    )


def _alert(rule: Rule, severity: str) -> Alert:
    of_rule = f'{{alert="{rule.name}",severity="{severity}"}}'
    breached, active = (latest(f"offpolicy_alert_{name}{of_rule}") for name in ("breach_steps", "active"))
    return Alert(
        rule.name,
        severity,
        of_unfinished(f"{breached} > 0\nand {active} == 1"),
        f"{rule.summary} (run {{{{ $labels.run }}}})",
        _description(rule, severity),
        half=rule.half,
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
