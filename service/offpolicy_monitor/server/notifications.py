"""AlertsToTell: what the store knows of alerts, with what their rules say, as the notifier asks for it."""

from collections.abc import Mapping
from typing import Any

import structlog
from pydantic import SecretStr

from offpolicy_monitor import notify
from offpolicy_monitor.errors import Unavailable
from offpolicy_monitor.exposition.process import ProcessMetrics
from offpolicy_monitor.notify.words import page
from offpolicy_monitor.server.http.answers import explained
from offpolicy_monitor.server.verdicts import Verdicts
from offpolicy_monitor.settings import Settings
from offpolicy_monitor.store import Leader, Store

log = structlog.get_logger("offpolicy_monitor.server")

#: How often the store is looked at for alerts to tell, seconds.
LOOK_SECONDS = 5.0


class AlertsToTell:
    """Implements notify.AlertSource."""

    def __init__(self, store: Store, verdicts: Verdicts, public_url: str) -> None:
        self._store, self._verdicts, self._public_url = store, verdicts, public_url
        self.mark_told = store.mark_told

    def untold(self, limit: int) -> list[notify.Alert]:
        """Alerts whose state has not been told, the oldest first."""
        return [self._in_words(row) for row in self._store.untold(limit)]

    def firing(self, resolved_since: float) -> list[notify.Alert]:
        """Active alerts, and those resolved since then (unix seconds)."""
        return [self._in_words(row) for row in self._store.firing(resolved_since)]

    def message(self, alert: notify.Alert) -> str | None:
        """What it says to people: the verdict and what to do, or its rule's own words where these cannot be had."""
        own: str | None = alert["message"]
        try:
            return self._verdicts.message(alert, page(self._public_url, alert))
        except Unavailable:
            raise
        except Exception as error:  # a boundary: the alert has to be told, whatever is wrong with its words
            log.error("an alert is told without the verdict", alert=alert["alert"], run=alert["run"], exc_info=error)
            return own

    def _in_words(self, row: Mapping[str, Any]) -> notify.Alert:
        return {**row, **explained(row["alert"], self._public_url)}


def notifier(
    settings: Settings, store: Store, verdicts: Verdicts, metrics: ProcessMetrics, leader: Leader
) -> notify.Notifier:
    """Tells the targets of the settings while this process leads; none of them, nothing to do.

    What another process stored wakes nobody here, so the store is looked at often.
    """
    targets = notify.targets(
        settings.public_url,
        settings.webhook_url,
        _plain(settings.webhook_secret),
        settings.alertmanager_urls,
        settings.notify_interval,
        _plain(settings.webhook_authorization),
        _plain(settings.alertmanager_authorization),
    )
    return notify.Notifier(
        AlertsToTell(store, verdicts, settings.public_url),
        targets,
        count=metrics.notified,
        interval=LOOK_SECONDS,
        may_tell=leader.leads,
    )


def _plain(secret: SecretStr | None) -> str | None:
    return None if secret is None else secret.get_secret_value()
