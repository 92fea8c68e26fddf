"""The Prometheus rule files, rendered from the rules of the service and from rows of their own: `make docs`.

alert has the row types and what expressions share; steps and clock are made of the service's rules, service and
recording are rows of their own; files writes all of it as YAML. Thresholds, profiles and overrides are not known here:
the service exports them. For developers alone: the wheel carries dashboards/prometheus and no generator.
"""

from scripts.prometheus.files import prometheus_rule, rule_files

__all__ = ["prometheus_rule", "rule_files"]
