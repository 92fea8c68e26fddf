"""Limits: the levels from which a run's own rules warn and are critical, for its diagnosis and its plots."""

from collections.abc import Mapping
from typing import Any, Final

from offpolicy_monitor.alerts import RULES, Rule
from offpolicy_monitor.alerts.rule import Terms
from offpolicy_monitor.diagnosis import Limits
from offpolicy_monitor.store import RunView

_RULE: Final = next(rule for rule in RULES if rule.name == "MismatchKL")


def mismatch_limits(profile: str, overrides: Mapping[str, Mapping[str, Any]]) -> Limits:
    """Those of MismatchKL: of the profile, or the run's own where it set them; one it wants no alert of stays usual."""
    usual, own = (Terms(profile, None, terms).limits(_RULE) for terms in ({}, overrides))
    warning, critical = (own.get(severity, usual[severity]).threshold for severity in ("warning", "critical"))
    return Limits(warning, critical)


def critical_alone(rule: Rule, view: RunView) -> float | None:
    """The level from which the rule's figure alone is critical; None where the run's own threshold is that level."""
    own = view.overrides.get(rule.name, {})
    return None if "critical" in own else rule.critical_alone(view.shown["profile"])
