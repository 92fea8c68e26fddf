"""The webhook is told each change once: signed, in order, again until it answers, and never twice."""

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from offpolicy_monitor.notify import Notifier, targets
from offpolicy_monitor.notify.backoff import Backoff
from offpolicy_monitor.notify.http import send
from offpolicy_monitor.notify.ports import Outcome, Ports, Post, Reply
from offpolicy_monitor.notify.webhook import BATCH, Webhook, signature
from offpolicy_monitor.settings import authorization

from tests.notify.alerts import ALERT, PUBLIC_URL, Alerts
from tests.notify.receiver import Receiver, eventually, receiving

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "alerts.md"
SECRET = "correct horse"


class Bench:
    """A webhook with a clock that stands until it is moved, and what was counted."""

    def __init__(self, source: Alerts, url: str, send: Any = send) -> None:
        self.now, self.elapsed, self.counted = 1_700_000_200.0, 50.0, list[Outcome]()
        self.webhook = Webhook(url, SECRET, PUBLIC_URL, Backoff(chance=lambda: 1.0))
        self.ports = Ports(
            source, send, lambda: self.now, lambda: self.elapsed, lambda target, outcome: self.counted.append(outcome)
        )

    def deliver(self, after: float = 0.0) -> float:
        self.now += after
        self.elapsed += after
        return self.webhook.deliver(self.ports)


def test_the_body_says_what_how_much_since_when_and_where_to_read_on() -> None:
    with receiving() as receiver:
        assert Bench(Alerts(ALERT), receiver.url).deliver() == float("inf")
    assert receiver.taken == [
        {
            "version": 1,
            "id": receiver.received[0].headers["X-Offpolicy-Delivery"],
            "state": "active",
            "alert": "MismatchKL",
            "severity": "critical",
            "run": "r1",
            "value": 0.02,
            "peak": 0.05,
            "active_step": 100,
            "resolved_step": None,
            "threshold": 0.01,
            "since_step": 96,
            "last_step": 120,
            "breach_steps": 5,
            "half": "mismatch",
            "inhibited_by": None,
            "evidence": [],
            "expression": "mismatch k3",
            "summary": "Engine and trainer disagree about the same tokens",
            "runbook": "http://monitor.example:8900/runbook#MismatchKL",
            "page": "http://monitor.example:8900/runs/r1?step=96",
            "started_at": "2023-11-14T22:13:20.000Z",
            "active_at": "2023-11-14T22:14:20.500Z",
            "resolved_at": None,
        }
    ]
    assert receiver.received[0].headers["Content-Type"] == "application/json"


def test_a_value_that_is_not_finite_is_null() -> None:
    with receiving() as receiver:
        Bench(Alerts({**ALERT, "value": float("inf")}), receiver.url).deliver()
    assert receiver.taken[0]["value"] is None


def test_the_signature_is_the_hmac_of_timestamp_and_body() -> None:
    # echo -n '1700000200.{}' | openssl dgst -sha256 -hmac 'correct horse'
    expected = "sha256=bee5fb306d64ba733d984bf1322bd4ccb4cbb8bad8a1097bba9b0ff7b31d3c32"
    assert signature(SECRET, "1700000200", b"{}") == expected


def test_the_snippet_of_the_documentation_accepts_what_is_sent_and_nothing_else() -> None:
    snippet = re.search(r"```python\n(.*?)```", DOCUMENT.read_text().split("## Being told without Prometheus")[1], re.S)
    assert snippet is not None and snippet.group(1).strip().count("\n") < 10
    names: dict[str, Any] = {}
    exec(snippet.group(1), names)
    genuine = names["genuine"]
    with receiving() as receiver:
        bench = Bench(Alerts(ALERT), receiver.url)
        bench.now = time.time()
        bench.deliver()
    headers, body = receiver.received[0].headers, receiver.received[0].body
    assert genuine(SECRET, headers, body)
    assert not genuine("another", headers, body)
    assert not genuine(SECRET, headers, body.replace(b"critical", b"warning "))
    assert not genuine(SECRET, {**headers, "X-Offpolicy-Timestamp": str(int(bench.now) - 3)}, body)
    replayed = {**headers, "X-Offpolicy-Timestamp": str(int(bench.now) - 1000)}
    replayed["X-Offpolicy-Signature"] = signature(SECRET, replayed["X-Offpolicy-Timestamp"], body)
    assert not genuine(SECRET, replayed, body)


def test_without_a_secret_nothing_is_signed() -> None:
    with receiving() as receiver:
        Webhook(receiver.url, None, PUBLIC_URL).deliver(Bench(Alerts(ALERT), receiver.url).ports)
    assert "X-Offpolicy-Signature" not in receiver.received[0].headers


def test_what_was_told_is_not_told_again_and_its_end_is_told_once() -> None:
    source = Alerts(ALERT)
    with receiving() as receiver:
        bench = Bench(source, receiver.url)
        bench.deliver()
        bench.deliver(60)
        source.resolve(1)
        bench.deliver(60)
        bench.deliver(60)
    assert [(body["state"], body["resolved_at"]) for body in receiver.taken] == [
        ("active", None),
        ("resolved", "2023-11-14T22:15:20.000Z"),
    ]
    assert receiver.taken[0]["id"] != receiver.taken[1]["id"]


def test_a_restart_repeats_nothing_and_keeps_the_ids_of_what_is_sent_again() -> None:
    source = Alerts(ALERT)
    with receiving(Receiver(statuses=[503])) as receiver:
        Bench(source, receiver.url).deliver()
        Bench(source, receiver.url).deliver()
        Bench(source, receiver.url).deliver()
    assert [request.status for request in receiver.received] == [503, 200]
    assert receiver.received[0].json["id"] == receiver.received[1].json["id"]


@pytest.mark.parametrize("status", [500, 502, 503, 408, 425, 429])
def test_a_receiver_that_cannot_now_is_asked_again_after_doubling_delays(status: int) -> None:
    with receiving(Receiver(statuses=[status] * 3)) as receiver:
        bench = Bench(Alerts(ALERT), receiver.url)
        assert [bench.deliver(), bench.deliver(1), bench.deliver(2)] == [1.0, 2.0, 4.0]
        assert bench.deliver(3.5) == 0.5, "too early"
        assert bench.deliver(0.5) == float("inf")
        assert bench.deliver(300) == float("inf")
    assert [request.status for request in receiver.received] == [status] * 3 + [200]
    assert bench.counted == ["failed", "failed", "failed", "sent"]


def test_a_receiver_that_is_away_is_tried_at_most_every_five_minutes_and_told_when_it_is_back() -> None:
    source = Alerts(ALERT)
    with receiving() as receiver:
        port = int(receiver.url.split(":")[2].split("/")[0])
    bench = Bench(source, receiver.url)
    delays = [bench.deliver(300) for _ in range(12)]
    assert delays[:3] == [1.0, 2.0, 4.0] and delays[-1] == 300.0
    assert source.told == {}
    with receiving(receiver, port):
        bench.deliver(300)
    assert [body["state"] for body in receiver.taken] == ["active"]


def test_a_receiver_that_asks_for_time_gets_it() -> None:
    with receiving(Receiver(statuses=[429], headers={"Retry-After": "77"})) as receiver:
        bench = Bench(Alerts(ALERT), receiver.url)
        assert bench.deliver() == 77.0
        assert bench.deliver(76) == 1.0
        assert bench.deliver(1) == float("inf")
    assert len(receiver.received) == 2


def test_a_receiver_that_is_too_slow_is_as_good_as_away() -> None:
    with receiving(hanging=True) as receiver:
        reply = send(Post(receiver.url, b"{}", {}), timeout=0.2)
    assert (reply.status, reply.outcome) == (None, "failed")
    assert "timed out" in reply.reason


@pytest.mark.parametrize("status", [400, 404, 410, 422])
def test_a_refusal_is_an_answer(status: int) -> None:
    source = Alerts(ALERT)
    with receiving(Receiver(statuses=[status])) as receiver:
        bench = Bench(source, receiver.url)
        bench.deliver()
        bench.deliver(600)
    assert len(receiver.received) == 1
    assert (source.told, bench.counted) == ({1: "active"}, ["refused"])


def test_a_login_that_is_refused_may_be_mended_so_nothing_is_lost() -> None:
    source, login = Alerts(ALERT), authorization("Bearer t0ken")
    with receiving(Receiver(statuses=[401])) as receiver:
        notifier = Notifier(source, targets(PUBLIC_URL, receiver.url, webhook_authorization=login), interval=0.05)
        notifier.start()
        receiver.wait_for(1)
        eventually(lambda: source.told == {1: "active"})
        notifier.close(5)
    assert [one.status for one in receiver.received] == [401, 200]
    assert [Reply(status).outcome for status in (401, 403, 407, 404)] == ["failed"] * 3 + ["refused"]
    assert {one.headers["Authorization"] for one in receiver.received} == {"Bearer t0ken"}


def test_a_redirect_is_not_followed_and_nothing_is_lost() -> None:
    source = Alerts(ALERT)
    with receiving() as other, receiving(Receiver(statuses=[302], headers={"Location": other.url})) as receiver:
        bench = Bench(source, receiver.url)
        bench.deliver()
        assert (other.received, source.told) == ([], {})
        bench.deliver(1)
    assert source.told == {1: "active"}


def test_one_alert_that_the_receiver_fails_on_holds_up_no_other() -> None:
    source = Alerts(ALERT, {**ALERT, "id": 2, "alert": "ChiSquare"})
    with receiving(Receiver(statuses=[500])) as receiver:
        Bench(source, receiver.url).deliver()
    assert [(r.json["alert"], r.status) for r in receiver.received] == [("MismatchKL", 500), ("ChiSquare", 200)]


def test_a_receiver_without_an_answer_is_asked_once_a_round() -> None:
    asked = []

    def nobody(post: Post) -> Reply:
        asked.append(json.loads(post.body)["alert"])
        return Reply(None, "connection refused")

    bench = Bench(Alerts(ALERT, {**ALERT, "id": 2, "alert": "ChiSquare"}), "http://127.0.0.1:1", nobody)
    bench.deliver()
    bench.deliver()
    assert asked == ["MismatchKL"]


def test_more_than_a_batch_is_told_in_order() -> None:
    source = Alerts(*({**ALERT, "id": number} for number in range(BATCH + 3)))
    with receiving() as receiver:
        bench = Bench(source, receiver.url)
        assert bench.deliver() == 0.0
        assert bench.deliver() == float("inf")
    assert [mark for mark, _ in source.marks] == list(range(BATCH + 3))
    assert len({body["id"] for body in receiver.taken}) == BATCH + 3


def test_what_was_taken_while_the_source_was_away_is_not_sent_twice() -> None:
    class Away(Alerts):
        fails = True

        def mark_told(self, alert_id: int, state: str) -> None:
            if self.fails:
                raise OSError("the disk is away")
            super().mark_told(alert_id, state)

    source = Away(ALERT)
    with receiving() as receiver:
        bench = Bench(source, receiver.url)
        with pytest.raises(OSError, match="away"):
            bench.deliver()
        source.fails = False
        bench.deliver()
        bench.deliver()
    assert (len(receiver.received), source.told) == (1, {1: "active"})


@pytest.mark.parametrize("jump", [-3600.0, 3600.0])
def test_a_clock_that_is_set_puts_off_no_delivery_and_hurries_none(jump: float) -> None:
    with receiving(Receiver(statuses=[500, 500])) as receiver:
        bench = Bench(Alerts(ALERT), receiver.url)
        assert bench.deliver() == 1.0
        bench.now += jump
        assert bench.deliver(after=0.5) == 0.5
        assert bench.deliver(after=0.5) == 2.0
        bench.now += jump
        assert bench.deliver(after=2.0) == float("inf")
    assert bench.counted == ["failed", "failed", "sent"]
