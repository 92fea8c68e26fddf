"""An Alertmanager (API v2): all active alerts, on every change and once per interval, as Prometheus itself does it.

An alert that is no longer repeated ends by itself after four intervals; one that is resolved is told as such for a
while. Repeating is harmless by nature, so nothing is kept. Routing, silences and inhibition are the Alertmanager's.
"""

import json
from collections.abc import Iterable
from typing import Any, Final

import structlog

from offpolicy_monitor.notify.backoff import Backoff
from offpolicy_monitor.notify.ports import Alert, Ports, Post, Reply
from offpolicy_monitor.notify.words import description, page
from offpolicy_monitor.timestamps import timestamp

log = structlog.get_logger("offpolicy_monitor.notify")

#: How long a resolved alert is told, seconds.
TOLD_RESOLVED: Final = 900.0
#: After how many intervals without a repetition an alert ends by itself.
LIVES: Final = 4
SOURCE: Final = "offpolicy-monitor"
PATH: Final = "/api/v2/alerts"
KEY: Final = "alertmanager"


class Alertmanager:
    """One Alertmanager at a base URL; `interval` in seconds, `authorization` as the header has it."""

    kind = "alertmanager"

    def __init__(
        self,
        url: str,
        interval: float,
        public_url: str,
        backoff: Backoff | None = None,
        authorization: str | None = None,
    ) -> None:
        self._headers = {"Authorization": authorization} if authorization else {}
        self._url, self._interval, self._public_url = url.rstrip("/") + PATH, interval, public_url
        self._backoff = backoff or Backoff(cap=interval)
        self._told: frozenset[tuple[int, str]] = frozenset()
        self._next_at = float("-inf")
        self._refused: int | None = None

    def deliver(self, ports: Ports) -> float:
        """Post if something changed or the interval is over; answers the seconds until the next post."""
        now, elapsed = ports.clock(), ports.elapsed()
        if wait := self._backoff.wait(KEY, elapsed):
            return wait
        alerts = newest(ports.source.firing(now - TOLD_RESOLVED))
        states = frozenset((alert["id"], alert["state"]) for alert in alerts)
        # What is only gone from the list was told as resolved long ago.
        if states <= self._told and elapsed < self._next_at:
            return self._next_at - elapsed
        if alerts:
            reply = ports.send(self._post([(alert, ports.source.message(alert)) for alert in alerts], now))
            ports.count(self.kind, reply.outcome)
            if reply.outcome == "failed":
                return self._put_off(reply, ports.elapsed())
            self._say_refused(reply)
        self._backoff.passed(KEY)
        self._told, self._next_at = states, elapsed + self._interval
        return self._interval

    def _put_off(self, reply: Reply, now: float) -> float:
        delay = self._backoff.failed(KEY, now, reply.retry_after)
        log.warning(
            "an Alertmanager did not take the alerts",
            url=self._url, status=reply.status, reason=reply.reason, again_in=round(delay, 1),
        )  # fmt: skip
        return delay

    def _say_refused(self, reply: Reply) -> None:
        """Once, not every interval."""
        refused = reply.status if reply.outcome == "refused" else None
        if refused is not None and refused != self._refused:
            log.error("an Alertmanager refused the alerts", url=self._url, status=refused, reason=reply.reason)
        self._refused = refused

    def _post(self, alerts: Iterable[tuple[Alert, str | None]], now: float) -> Post:
        expires = now + LIVES * self._interval
        entries = [entry(alert, message, expires, self._public_url) for alert, message in alerts]
        return Post(self._url, json.dumps(entries).encode(), self._headers)


def newest(alerts: Iterable[Alert]) -> list[Alert]:
    """One alert for each run, rule and severity: to an Alertmanager these are one, so the one that goes on counts."""
    found: dict[tuple[str, str, str], Alert] = {}
    for alert in sorted(alerts, key=lambda alert: (alert["state"] == "active", alert["active_at"])):
        found[alert["run"], alert["alert"], alert["severity"]] = alert
    return list(found.values())


def entry(alert: Alert, message: str | None, expires: float, public_url: str) -> dict[str, Any]:
    """An alert as the API wants it; `expires` is when an active one ends unless it is repeated."""
    ends = expires if alert["state"] == "active" else max(alert["resolved_at"], alert["active_at"])
    return {
        "labels": {
            "alertname": alert["alert"], "run": alert["run"], "severity": alert["severity"], "source": SOURCE,
            **({"half": alert["half"]} if alert["half"] else {}),
        },
        "annotations": {
            "summary": alert["summary"], "description": description(alert, message), "runbook_url": alert["runbook"],
        },
        "startsAt": timestamp(alert["active_at"]),
        "endsAt": timestamp(ends),
        "generatorURL": page(public_url, alert),
    }  # fmt: skip
