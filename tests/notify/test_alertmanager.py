"""Alertmanagers hold what is active as long as it is, notify once, and are told when it ends; on the real program."""

import json
import time
from pathlib import Path
from typing import Any

from offpolicy_monitor.notify import Notifier, targets
from offpolicy_monitor.notify.alertmanager import Alertmanager, entry
from offpolicy_monitor.notify.http import send
from offpolicy_monitor.notify.ports import Ports, Post, Reply
from offpolicy_monitor.notify.words import description, page
from offpolicy_monitor.settings import authorization

from tests.notify.alerts import ALERT, PUBLIC_URL, Alerts
from tests.notify.manager import LOGIN, alerts_of, running_alertmanager
from tests.notify.receiver import eventually, receiving

INTERVAL = 60.0


class Bench:
    """An Alertmanager that is not there: a clock that stands until it is moved, and what would have been sent."""

    def __init__(self, source: Alerts) -> None:
        self.now, self.elapsed, self.posts, self.status = 1_700_000_200.0, 50.0, list[Any](), 200
        self.target = Alertmanager("http://am.example:9093/prefix/", INTERVAL, PUBLIC_URL)
        self.ports = Ports(source, self.send, lambda: self.now, lambda: self.elapsed, lambda target, outcome: None)

    def send(self, post: Post) -> Reply:
        assert post.url == "http://am.example:9093/prefix/api/v2/alerts"
        self.posts.append(json.loads(post.body))
        return Reply(self.status)

    def deliver(self, after: float = 0.0) -> float:
        self.now += after
        self.elapsed += after
        return self.target.deliver(self.ports)


def test_an_alert_has_the_labels_that_routes_match_and_the_annotations_that_people_read() -> None:
    labels = {"alertname": "MismatchKL", "run": "r1", "severity": "critical", "source": "offpolicy-monitor"}
    assert entry(ALERT, None, 1_700_000_440.0, PUBLIC_URL) == {
        "labels": {**labels, "half": "mismatch"},
        "annotations": {
            "summary": "Engine and trainer disagree about the same tokens",
            "description": "run r1: mismatch k3 is 0.02 (threshold 0.01) at step 120 "
            "and has been beyond it since step 96, for 5 steps",
            "runbook_url": "http://monitor.example:8900/runbook#MismatchKL",
        },
        "startsAt": "2023-11-14T22:14:20.500Z",
        "endsAt": "2023-11-14T22:20:40.000Z",
        "generatorURL": "http://monitor.example:8900/runs/r1?step=96",
    }


def test_an_alert_of_the_wall_clock_leads_to_the_runs_page_as_it_is() -> None:
    assert page(PUBLIC_URL, {**ALERT, "since_step": None}) == "http://monitor.example:8900/runs/r1"


def test_a_description_leaves_out_what_an_alert_of_the_wall_clock_lacks() -> None:
    silent = {**ALERT, "expression": "seconds without a batch", "since_step": None, "breach_steps": 0, "value": 712.0}
    assert description({**silent, "threshold": 600.0}, None) == (
        "run r1: seconds without a batch is 712 (threshold 600) at step 120"
    )


def test_what_is_of_no_half_has_no_such_label() -> None:
    assert "half" not in entry({**ALERT, "half": None}, None, 1_700_000_440.0, PUBLIC_URL)["labels"]


def test_what_an_alert_says_is_asked_for_where_it_is_posted_and_no_oftener() -> None:
    source = Alerts({**ALERT, "message": "Verdict: skip. Drifting since step 96."})
    bench = Bench(source)
    bench.deliver()
    bench.deliver(20)
    assert bench.posts[0][0]["annotations"]["description"] == "run r1: Verdict: skip. Drifting since step 96."
    assert source.asked == [1]


def test_it_is_told_at_once_of_a_change_and_else_once_an_interval() -> None:
    source = Alerts(ALERT)
    bench = Bench(source)
    assert bench.deliver() == INTERVAL
    assert bench.deliver(20) == 40.0
    source.add(id=2, alert="ChiSquare")
    assert bench.deliver(10) == INTERVAL
    bench.deliver(60)
    assert [len(post) for post in bench.posts] == [1, 2, 2]
    assert [post[0]["endsAt"][11:19] for post in bench.posts] == ["22:20:40", "22:21:10", "22:22:10"]


def test_what_ended_is_told_for_a_quarter_of_an_hour() -> None:
    source = Alerts(ALERT)
    bench = Bench(source)
    bench.deliver()
    source.resolve(1, at=bench.now)
    for _ in range(20):
        bench.deliver(INTERVAL)
    assert len(bench.posts) == 1 + 15
    assert {post[0]["endsAt"] for post in bench.posts[1:]} == {"2023-11-14T22:16:40.000Z"}


def test_where_nothing_is_active_nothing_is_sent() -> None:
    bench = Bench(Alerts())
    assert bench.deliver() == INTERVAL
    assert bench.posts == []


def test_an_alert_that_came_back_is_not_told_as_resolved() -> None:
    source = Alerts({**ALERT, "state": "resolved", "resolved_at": 1_700_000_100.0})
    source.add(id=2, active_at=1_700_000_150.0)
    bench = Bench(source)
    bench.deliver()
    assert [alert["startsAt"] for alert in bench.posts[0]] == ["2023-11-14T22:15:50.000Z"]


def test_one_that_is_away_is_tried_again_before_the_interval_and_at_most_once_an_interval() -> None:
    bench = Bench(Alerts(ALERT))
    bench.status = 503
    assert 0.5 <= bench.deliver() <= 1.0
    delays = [bench.deliver(INTERVAL) for _ in range(10)]
    assert INTERVAL / 2 <= delays[-1] <= INTERVAL
    bench.status = 200
    assert bench.deliver(INTERVAL) == INTERVAL


def test_a_real_alertmanager_notifies_once_and_says_when_it_ended(tmp_path: Path) -> None:
    source, now = Alerts(), time.time()
    with receiving() as people, running_alertmanager(tmp_path, people.url) as url:
        told = targets(PUBLIC_URL, alertmanager_urls=(url,), interval=0.2)
        notifier = Notifier(source, told, interval=0.2)
        notifier.start()
        source.add(active_at=now)
        notifier.wake()
        firing = people.wait_for(1)[0]
        held = alerts_of(url)
        time.sleep(1.5)  # seven repetitions
        assert len(people.taken) == 1, "a repetition notified again"
        source.resolve(1, at=time.time())
        notifier.wake()
        resolved = people.wait_for(2)[1]
        eventually(lambda: alerts_of(url) == [])
        notifier.close(5)
    labels = {"alertname": "MismatchKL", "run": "r1", "severity": "critical", "source": "offpolicy-monitor"}
    assert [alert["labels"] for alert in held] == [{**labels, "half": "mismatch"}]
    assert (firing["status"], resolved["status"]) == ("firing", "resolved")
    assert firing["alerts"][0]["annotations"]["runbook_url"] == "http://monitor.example:8900/runbook#MismatchKL"
    assert firing["alerts"][0]["generatorURL"] == "http://monitor.example:8900/runs/r1?step=96"
    assert len(people.received) == 2


def test_a_real_alertmanager_behind_a_login_is_told_by_who_knows_the_password(tmp_path: Path) -> None:
    login = authorization("Basic monitor:open: sesame")
    with receiving() as people, running_alertmanager(tmp_path, people.url, behind_login=True) as url:
        told = targets(PUBLIC_URL, alertmanager_urls=(url,), interval=0.2, alertmanager_authorization=login)
        notifier = Notifier(Alerts({**ALERT, "active_at": time.time()}), told, interval=0.2)
        notifier.start()
        people.wait_for(1)
        notifier.close(5)
        assert [alert["labels"]["run"] for alert in alerts_of(url, LOGIN)] == ["r1"]
        strangers = [None, authorization("Basic monitor:wrong"), authorization("Bearer open:sesame")]
        posts = [Post(f"{url}/api/v2/alerts", b"[]", {"Authorization": one or ""}) for one in (*strangers, login)]
        assert [send(post).status for post in posts] == [401, 401, 401, 200]


def test_every_alertmanager_of_several_is_told(tmp_path: Path) -> None:
    with receiving() as one, receiving() as other:
        urls = [receiver.url.removesuffix("/hook") for receiver in (one, other)]
        notifier = Notifier(Alerts(ALERT), targets(PUBLIC_URL, alertmanager_urls=urls))
        notifier.start()
        assert [len(one.wait_for(1)[0]), len(other.wait_for(1)[0])] == [1, 1]
        notifier.close(5)


def test_a_clock_that_is_set_back_puts_off_no_repetition() -> None:
    bench = Bench(Alerts(ALERT))
    assert bench.deliver() == INTERVAL
    bench.now -= 3600.0
    assert bench.deliver(after=INTERVAL - 1) == 1.0
    assert bench.deliver(after=1.0) == INTERVAL
    bench.status = 500
    wait = bench.deliver(after=INTERVAL)
    bench.now -= 3600.0
    assert bench.deliver(after=wait) > 0
    assert len(bench.posts) == 4
