"""The notifier runs beside the service: it never holds it up, survives what fails, and ends when told to."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from offpolicy_monitor.exposition.process import ProcessMetrics
from offpolicy_monitor.notify import Notifier, targets
from offpolicy_monitor.notify.http import TIMEOUT
from offpolicy_monitor.notify.ports import OUTCOMES, TARGETS
from prometheus_client import CollectorRegistry

from tests.notify.alerts import ALERT, PUBLIC_URL, Alerts
from tests.notify.receiver import Receiver, eventually, receiving


def notifier(source: Alerts, url: str, **options: Any) -> Notifier:
    return Notifier(source, targets(PUBLIC_URL, url), **options)


def test_waiting_alerts_are_told_at_start_and_new_ones_when_it_is_woken() -> None:
    source = Alerts(ALERT)
    with receiving() as receiver:
        running = notifier(source, receiver.url)
        running.start()
        receiver.wait_for(1)
        source.add(id=2, alert="ChiSquare")
        running.wake()
        assert [body["alert"] for body in receiver.wait_for(2)] == ["MismatchKL", "ChiSquare"]
        running.close(5)


def test_what_the_wall_clock_brings_is_found_without_being_woken() -> None:
    source = Alerts()
    with receiving() as receiver:
        running = notifier(source, receiver.url, interval=0.05)
        running.start()
        source.add(alert="RunSilent")
        receiver.wait_for(1)
        running.close(5)


def test_an_alert_is_tried_until_it_is_taken_and_then_never_again_by_anyone() -> None:
    source = Alerts(ALERT)
    with receiving(Receiver(statuses=[503, 500])) as receiver:
        first = notifier(source, receiver.url)
        first.start()
        receiver.wait_for(1)
        eventually(lambda: source.told == {1: "active"})
        first.wake()
        first.close(5)
        second = notifier(source, receiver.url, interval=0.05)
        second.start()
        source.resolve(1)
        second.wake()
        receiver.wait_for(2)
        time.sleep(0.3)
        second.close(5)
    assert [(request.json["state"], request.status) for request in receiver.received] == [
        ("active", 503), ("active", 500), ("active", 200), ("resolved", 200),
    ]  # fmt: skip


def test_a_target_that_hangs_holds_up_neither_the_others_nor_the_end() -> None:
    source = Alerts(ALERT)
    with receiving(hanging=True) as stuck, receiving() as well:
        told = targets(PUBLIC_URL, stuck.url, alertmanager_urls=[well.url.removesuffix("/hook")])
        running = Notifier(source, told)
        running.start()
        well.wait_for(1)
        began = time.monotonic()
        running.wake()
        assert time.monotonic() - began < TIMEOUT / 2
        running.close(0.3)
        assert 0.2 < time.monotonic() - began < TIMEOUT / 2
    eventually(lambda: source.told == {1: "active"})


def test_a_source_that_fails_is_asked_again() -> None:
    class Failing(Alerts):
        failures = 2

        def untold(self, limit: int) -> Sequence[Mapping[str, Any]]:
            if self.failures:
                self.failures -= 1
                raise RuntimeError("the database is away")
            return super().untold(limit)

    with receiving() as receiver:
        running = notifier(Failing(ALERT), receiver.url, interval=0.05)
        running.start()
        receiver.wait_for(1)
        running.close(5)


def test_one_that_was_never_started_and_one_without_targets_can_be_closed() -> None:
    notifier(Alerts(), "http://127.0.0.1:1/hook").close(1)
    idle = Notifier(Alerts(), ())
    idle.start()
    idle.wake()
    idle.close(1)


def test_posts_are_counted_from_zero_by_target_and_outcome() -> None:
    registry = CollectorRegistry()
    metrics = ProcessMetrics(registry)

    def count(target: str, outcome: str) -> float | None:
        return registry.get_sample_value("offpolicy_notifications_total", {"target": target, "outcome": outcome})

    assert {count(target, outcome) for target in TARGETS for outcome in OUTCOMES} == {0.0}
    with receiving(Receiver(statuses=[503, 410])) as receiver:
        running = notifier(Alerts(ALERT, {**ALERT, "id": 2}), receiver.url, count=metrics.notified)
        running.start()
        eventually(lambda: count("webhook", "sent") == 1.0)
        running.close(5)
    assert [count("webhook", outcome) for outcome in OUTCOMES] == [1.0, 1.0, 1.0]
    assert count("alertmanager", "sent") == 0.0


def test_nothing_is_told_while_another_process_tells_and_what_waits_is_told_when_it_no_longer_does() -> None:
    leads = [False]
    with receiving() as receiver:
        running = notifier(Alerts(ALERT), receiver.url, interval=0.05, may_tell=lambda: leads[0])
        running.start()
        time.sleep(0.3)
        assert receiver.received == []
        leads[0] = True
        running.wake()
        receiver.wait_for(1)
        running.close(5)


def test_who_ceases_to_lead_between_reading_and_posting_posts_nothing() -> None:
    answers = iter([True, False])
    source = Alerts(ALERT)
    with receiving() as receiver:
        running = notifier(source, receiver.url, may_tell=lambda: next(answers, False))
        running.start()
        eventually(lambda: next(answers, None) is None)
        time.sleep(0.2)
        running.close(5)
        assert receiver.received == []
    assert source.told == {}
