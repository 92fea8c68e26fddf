"""The query that draws a rule's thresholds in a run, whether it is breached or quiet."""

from collections.abc import Callable, Iterator

from offpolicy_monitor.alerts import RULES, Rule, Severity
from offpolicy_monitor.vocabulary import PROFILES

from scripts.dashboards.model import of_run

#: The threshold of a profile.
Of = Callable[[str], float | None]


def in_force(alert: str) -> str:
    """By severity: what the service shows, and where it shows nothing the threshold of the run's profile.

    It shows the threshold of a rule that is breached, or that the run has its own terms for. Where a breach of the
    profile's critical threshold is critical only with growth, the level that is so without it is drawn in its place.
    """
    rule = next(rule for rule in RULES if rule.name == alert)
    if rule.alone is None:
        shown = of_run("alert_threshold", f'alert="{alert}"', "severity")
        lines = [shown, *(line for severity in rule.severities for line in _of_profiles(rule, severity))]
    else:
        lines = [_shown(rule, "warning"), *_of_profiles(rule, "warning"), *_critical_alone(rule)]
    return "\nor ".join(lines)


def _shown(rule: Rule, severity: Severity) -> str:
    return of_run("alert_threshold", f'alert="{rule.name}",severity="{severity}"', "severity")


def _critical_alone(rule: Rule) -> Iterator[str]:
    """The run's own critical threshold, which is another than its profile's, and else the level of the profile."""
    shown = _shown(rule, "critical")
    yield from _by_profile(lambda value: f"({shown} != {value!r})", lambda profile: rule.threshold("critical", profile))
    yield from _by_profile(_drawn(rule, "critical"), rule.critical_alone)


def _of_profiles(rule: Rule, severity: Severity) -> Iterator[str]:
    """One expression a threshold, for the profiles that it holds in; none where the run does not want the rule."""
    return _by_profile(_drawn(rule, severity), lambda profile: rule.threshold(severity, profile))


def _drawn(rule: Rule, severity: Severity) -> Callable[[float | None], str]:
    """A level as a series, where the run wants the rule."""
    counted = of_run("alert_breach_steps", f'alert="{rule.name}",severity="{severity}"', "severity")
    return lambda value: f"(0 * {counted} + {value!r})"


def _by_profile(expression: Callable[[float | None], str], threshold: Of) -> Iterator[str]:
    """The expression of each threshold that there is, and of the profiles that have it."""
    thresholds = {profile: threshold(profile) for profile in PROFILES}
    for value in dict.fromkeys(thresholds.values()):
        named = "|".join(profile for profile in PROFILES if thresholds[profile] == value)
        of_profile = of_run("run_info", f'profile=~"{named}"')
        yield expression(value) if named == "|".join(PROFILES) else f"{expression(value)} and on () {of_profile}"
