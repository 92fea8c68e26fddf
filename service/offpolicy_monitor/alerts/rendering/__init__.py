"""The rules as Prometheus rule files: alerts on what the service counts, on its clock and on itself, and recordings.

alert has the row types and what expressions share; steps and clock are made of the rules, service and recording are
rows of their own; files writes all of it as YAML. Thresholds, profiles and overrides are not known here: the service
exports them.
"""

from offpolicy_monitor.alerts.rendering.files import rule_files

__all__ = ["rule_files"]
