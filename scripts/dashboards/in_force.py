"""The query that draws a rule's thresholds in a run, whether it is breached or quiet."""

from collections.abc import Iterator

from offpolicy_monitor.alerts import RULES, Rule, Severity
from offpolicy_monitor.alerts.rule import PROFILES

from scripts.dashboards.model import of_run


def in_force(alert: str) -> str:
    """By severity: what the service shows, and where it shows nothing the threshold of the run's profile.

    It shows the threshold of a rule that is breached, or that the run has its own terms for.
    """
    rule = next(rule for rule in RULES if rule.name == alert)
    shown = of_run("alert_threshold", f'alert="{alert}"', "severity")
    return "\nor ".join([shown, *(line for severity in rule.severities for line in _of_profiles(rule, severity))])


def _of_profiles(rule: Rule, severity: Severity) -> Iterator[str]:
    """One expression a threshold, for the profiles that it holds in; none where the run does not want the rule."""
    counted = of_run("alert_breach_steps", f'alert="{rule.name}",severity="{severity}"', "severity")
    thresholds = {profile: rule.threshold(severity, profile) for profile in PROFILES}
    for threshold in dict.fromkeys(thresholds.values()):
        drawn = f"(0 * {counted} + {threshold!r})"
        named = "|".join(profile for profile in PROFILES if thresholds[profile] == threshold)
        of_profile = of_run("run_info", f'profile=~"{named}"')
        yield drawn if named == "|".join(PROFILES) else f"{drawn} and on () {of_profile}"
