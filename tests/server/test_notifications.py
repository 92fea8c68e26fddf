"""What the notifier is given of an alert, though something is wrong with what is said of its run."""

from typing import Any

import pytest
from offpolicy_monitor.errors import Unavailable
from offpolicy_monitor.server.notifications import AlertsToTell
from offpolicy_monitor.server.verdicts import Verdicts
from offpolicy_monitor.store import Store

from tests.notify.alerts import ALERT

ROW = {**ALERT, "message": "Mismatch k3 is 0.02, critical above 0.01."}


class Failing(Verdicts):
    """Verdicts of which none can be had."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def message(self, *_: Any, **__: Any) -> str | None:
        raise self._error


def test_an_alert_is_told_in_its_rules_words_where_the_verdict_fails(store: Store) -> None:
    assert AlertsToTell(store, Failing(ZeroDivisionError()), "http://m").message(ROW) == ROW["message"]


def test_a_store_that_is_away_puts_the_alert_off(store: Store) -> None:
    with pytest.raises(Unavailable):
        AlertsToTell(store, Failing(Unavailable(503, "store-unavailable", "away")), "http://m").message(ROW)
