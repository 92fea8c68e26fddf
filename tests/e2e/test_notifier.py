"""A drifting run is told by the service itself, without Prometheus: to a webhook and to a real Alertmanager."""

import hashlib
import hmac
import json
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.e2e.drift import DRIFTED, HEALTHY, RUN, post
from tests.fixtures.http_stub import Asked, Said, answering
from tests.fixtures.prometheus import running_alertmanager, wait_for, webhook_receiver
from tests.fixtures.service import running_service

SECRET = "a secret for this test"


class Signed:
    """What a webhook was told, in order, and how often its signature was wrong. `away` answers 503."""

    def __init__(self) -> None:
        self.told: list[dict[str, Any]] = []
        self.wrong = self.refused = 0
        self.away = False

    def answer(self, asked: Asked) -> Said:
        stamped = asked.headers["X-Offpolicy-Timestamp"].encode() + b"." + asked.body
        signature = "sha256=" + hmac.new(SECRET.encode(), stamped, hashlib.sha256).hexdigest()
        self.wrong += signature != asked.headers["X-Offpolicy-Signature"]
        if self.away:
            self.refused += 1
            return Said(503)
        self.told.append(asked.json)
        return Said()


def test_a_webhook_is_told_each_change_once_though_it_was_away_and_the_service_restarted(tmp_path: Path) -> None:
    webhook = Signed()
    with ExitStack() as stack:
        url = stack.enter_context(answering(webhook.answer))
        setup = {"OFFPOLICY_WEBHOOK_URL": url, "OFFPOLICY_WEBHOOK_SECRET": SECRET}
        webhook.away = True
        with running_service(tmp_path, **setup) as at:
            answers = [post(at, step, DRIFTED) for step in range(3)]
            assert [answer["verdict"] for answer in answers] == ["accept", "accept", "skip"]
            wait_for(lambda: webhook.refused)
            assert webhook.told == []
        webhook.away = False
        with running_service(tmp_path, **setup) as at:
            wait_for(lambda: webhook.told)
            post(at, 3, HEALTHY)
            wait_for(lambda: len(webhook.told) > 1)
            post(at, 4, HEALTHY)
    firing, resolved = webhook.told
    k3 = answers[-1]["gaps"]["mismatch"]["k3"]
    assert webhook.wrong == 0
    assert {name: firing[name] for name in ("alert", "severity", "state", "run", "since_step", "last_step")} == {
        "alert": "MismatchKL",
        "severity": "critical",
        "state": "active",
        "run": RUN,
        "since_step": 0,
        "last_step": 2,
    }
    assert (firing["value"], firing["threshold"], firing["breach_steps"]) == (k3, 0.01, 3)
    assert firing["summary"] == "Engine and trainer disagree about the same tokens"
    assert firing["runbook"] == f"{at}/runbook#MismatchKL"
    assert (resolved["alert"], resolved["severity"], resolved["state"]) == ("MismatchKL", "critical", "resolved")
    assert resolved["active_at"] == firing["active_at"] < resolved["resolved_at"]


def test_an_alertmanager_tells_once_and_again_when_it_is_over(tmp_path: Path) -> None:
    with webhook_receiver() as receiver, running_alertmanager(tmp_path, receiver.url) as alertmanager:
        setup = {"OFFPOLICY_ALERTMANAGER_URLS": f"http://{alertmanager}", "OFFPOLICY_NOTIFY_INTERVAL": "1"}
        with running_service(tmp_path, **setup) as at:
            for step in range(3):
                post(at, step, DRIFTED)
            wait_for(lambda: receiver.told)
            with urllib.request.urlopen(f"http://{alertmanager}/api/v2/alerts", timeout=5) as answer:
                active = {(alert["labels"]["alertname"], alert["labels"]["run"]) for alert in json.load(answer)}
            assert ("MismatchKL", RUN) in active
            post(at, 3, HEALTHY)
            wait_for(lambda: len(receiver.told) > 1)
    (first_path, firing), (second_path, resolved) = receiver.told
    assert (first_path, second_path) == ("/page", "/page")
    assert (firing["status"], resolved["status"]) == ("firing", "resolved")
    (alert,) = firing["alerts"]
    labels = {name: alert["labels"][name] for name in ("alertname", "severity", "run", "source")}
    assert labels == {"alertname": "MismatchKL", "severity": "critical", "run": RUN, "source": "offpolicy-monitor"}
    assert alert["annotations"]["runbook_url"] == f"{at}/runbook#MismatchKL"
    assert alert["annotations"]["summary"] == "Engine and trainer disagree about the same tokens"
