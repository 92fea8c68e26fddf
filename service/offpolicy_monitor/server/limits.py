"""Limits: the mismatch from which a run's own rules warn and are critical, for its diagnosis. Knows no store."""

from collections.abc import Mapping
from typing import Any, Final

from offpolicy_monitor.alerts import RULES
from offpolicy_monitor.alerts.rule import Terms
from offpolicy_monitor.diagnosis import Limits

_RULE: Final = next(rule for rule in RULES if rule.name == "MismatchKL")


def mismatch_limits(profile: str, overrides: Mapping[str, Mapping[str, Any]]) -> Limits:
    """Those of MismatchKL: of the profile, or the run's own where it set them; one it wants no alert of stays usual."""
    usual, own = (Terms(profile, None, terms).limits(_RULE) for terms in ({}, overrides))
    warning, critical = (own.get(severity, usual[severity]).threshold for severity in ("warning", "critical"))
    return Limits(warning, critical)
