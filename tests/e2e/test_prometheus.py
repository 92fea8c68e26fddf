"""A drifting run from its batches to the webhook: the real service, Prometheus and Alertmanager, the shipped rules."""

import math
import urllib.error
import urllib.request
from functools import partial
from pathlib import Path

import pytest
import yaml

from tests.e2e.drift import DRIFTED, HEALTHY, RUN, post, send
from tests.fixtures.prometheus import (
    exposing,
    query,
    running_alertmanager,
    running_prometheus,
    wait_for,
    webhook_receiver,
)
from tests.fixtures.promtool import rule_files
from tests.fixtures.service import running_service


def test_a_drifting_run_is_told_once_even_if_the_service_restarts_and_is_resolved(tmp_path: Path) -> None:
    at = ""

    def metrics() -> str:
        with urllib.request.urlopen(f"{at}/metrics", timeout=5) as answer:
            return str(answer.read(), "utf-8")

    with (
        webhook_receiver() as receiver,
        exposing(metrics) as target,
        running_alertmanager(tmp_path, receiver.url) as alertmanager,
        running_prometheus(tmp_path, target, alertmanager) as prometheus,
    ):
        with running_service(tmp_path) as at:
            for step in range(2):
                post(at, step, DRIFTED)
            wait_for(lambda: query(prometheus, f'offpolicy_step{{run="{RUN}"}} == 1'))
            assert query(prometheus, 'ALERTS{alertstate="firing"}') == []
            k3 = post(at, 2, DRIFTED)["gaps"]["mismatch"]["k3"]
            wait_for(lambda: receiver.told)
        wait_for(lambda: query(prometheus, "up == 0"))
        with running_service(tmp_path) as at:
            wait_for(lambda: query(prometheus, f'offpolicy_step{{run="{RUN}"}} == 2'))
            assert len(receiver.told) == 1
            post(at, 3, HEALTHY)
            wait_for(lambda: len(receiver.told) > 1)
    firing, resolved = (document for _, document in receiver.told)
    assert [path for path, _ in receiver.told] == ["/page", "/page"]
    assert (firing["status"], resolved["status"]) == ("firing", "resolved")
    assert firing["groupLabels"] == {"run": RUN}
    assert [alert["labels"] for alert in firing["alerts"]] == [alert["labels"] for alert in resolved["alerts"]]
    (alert,) = firing["alerts"]
    labels = {name: alert["labels"][name] for name in ("alertname", "severity", "run", "job")}
    assert labels == {"alertname": "MismatchKL", "severity": "critical", "run": RUN, "job": "offpolicy-monitor"}
    assert k3 == pytest.approx(math.log(math.cosh(DRIFTED)), rel=1e-3)
    assert alert["annotations"] == {
        "summary": f"Engine and trainer disagree about the same tokens (run {RUN})",
        "description": f"Run {RUN}, step 2: mismatch k3 is {k3:.4g}, critical above 0.01; breached at 3 step(s).",
        "runbook_url": "http://127.0.0.1:8900/runbook#MismatchKL",
        "page_url": f"http://127.0.0.1:8900/runs/{RUN}",
    }


def test_every_recorded_expression_answers_for_a_service_that_is_in_use(tmp_path: Path) -> None:
    files = [yaml.safe_load(path.read_text()) for path in rule_files()]
    recorded = [
        rule["record"] for file in files for group in file["groups"] for rule in group["rules"] if "record" in rule
    ]
    with (
        running_service(tmp_path) as service,
        running_prometheus(tmp_path, service.removeprefix("http://"), "127.0.0.1:9") as prometheus,
    ):
        for step in range(3):
            post(service, step, HEALTHY)
            with pytest.raises(urllib.error.HTTPError, match="422"):
                send(f"{service}/v1/runs/{RUN}/batches", {"step": -1})
            wait_for(partial(query, prometheus, f'offpolicy_step{{run="{RUN}"}} == {step}'))
        for record in recorded:
            wait_for(partial(query, prometheus, f'{{__name__="{record}"}}'))
        (refused,) = query(prometheus, "instance:offpolicy_batches_refused:ratio_rate5m")
    assert 0.2 < float(refused["value"][1]) < 0.8
