"""Prometheus rule files, rendered from the rules: file name -> YAML, and all of them as one resource of Kubernetes.

`make docs` writes them to dashboards/prometheus and deploy/kubernetes. Knows the form of a rule file and where runbook
and page are, not what the rules say.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import yaml

from scripts.prometheus.alert import Alert, Recording
from scripts.prometheus.clock import clock_alerts
from scripts.prometheus.recording import recordings
from scripts.prometheus.service import SERVICE_ALERTS
from scripts.prometheus.steps import step_alerts

#: The page of the run that an alert is of; names of runs need no escaping.
OF_RUN: Final = "runs/{{ $labels.run }}"
HEAD: Final = """\
# Rendered by scripts/prometheus (`make docs`); changes made here are lost.
"""


def rule_files(service_url: str) -> dict[str, str]:
    """Every rule file; links lead to the runbook and the page at `service_url`, where people reach the service."""
    return {name: _written({"groups": groups}) for name, groups in _groups(service_url).items()}


def prometheus_rule(service_url: str) -> str:
    """The same groups as a PrometheusRule, which the Prometheus Operator brings to its Prometheus."""
    groups = [group for of_file in _groups(service_url).values() for group in of_file]
    named = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "offpolicy-monitor"},
    }
    return _written({**named, "spec": {"groups": groups}})


def _groups(service_url: str) -> dict[str, list[dict[str, Any]]]:
    """File name -> its groups."""
    url = service_url.rstrip("/")
    alerts = {"offpolicy-steps": step_alerts(), "offpolicy-clock": clock_alerts()}
    recorded = {f"offpolicy-{name}-recorded": map(_recording, rules) for name, rules in recordings().items()}
    return {
        "alerts.rules.yaml": _listed(
            {name: [_alert(row, url, OF_RUN) for row in rows] for name, rows in alerts.items()}
        ),
        "service.rules.yaml": _listed({"offpolicy-service": [_alert(row, url) for row in SERVICE_ALERTS]}),
        "recording.rules.yaml": _listed(recorded),
    }


def _alert(row: Alert, url: str, page: str = "") -> dict[str, Any]:
    times = {"for": row.lasting, "keep_firing_for": row.kept}
    return {
        "alert": row.name,
        "expr": row.expr,
        **{name: time for name, time in times.items() if time is not None},
        "labels": {"severity": row.severity, **({"half": row.half} if row.half else {})},
        "annotations": {
            "summary": row.summary,
            "description": row.description,
            "runbook_url": f"{url}/runbook#{row.name}",
            "page_url": f"{url}/{page}",
        },
    }


def _recording(row: Recording) -> dict[str, Any]:
    return {"record": row.record, "expr": row.expr}


def _listed(groups: Mapping[str, Iterable[dict[str, Any]]]) -> list[dict[str, Any]]:
    return [{"name": name, "rules": list(rules)} for name, rules in groups.items()]


def _written(document: Mapping[str, Any]) -> str:
    return HEAD + yaml.dump(document, Dumper=_Readable, sort_keys=False, width=1_000, allow_unicode=True)


class _Readable(yaml.SafeDumper):
    """Writes texts of several lines as blocks."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Readable.add_representer(str, _text)
