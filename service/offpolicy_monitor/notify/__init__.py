"""Tells people of alerts without Prometheus: a signed webhook on each change, Alertmanagers as long as an alert lasts.

ports says what a target needs of the rest; webhook and alertmanager are the targets, made by targets, and words what
they say; http posts; backoff paces what failed; notifier runs one lane per target. Knows neither the database nor the
settings, and evaluates no rule.
"""

from offpolicy_monitor.notify.notifier import Notifier
from offpolicy_monitor.notify.ports import Alert, AlertSource
from offpolicy_monitor.notify.targets import targets

__all__ = ["Alert", "AlertSource", "Notifier", "targets"]
