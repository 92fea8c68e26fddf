"""The service's answers go to whoever asked for them, and nothing that goes wrong there is the batch's fault."""

import pickle
from collections.abc import Mapping
from typing import Any

import pytest
from offpolicy_monitor import Monitor

from tests.client.batches import batch
from tests.client.fakes import Fake, serving
from tests.fixtures.http_stub import Said


def test_each_answer_is_handed_over_in_order_and_before_the_queue_is_empty() -> None:
    fake, seen = Fake([Said(200, {"verdict": "accept"}), Said(200, {"verdict": "warn"})]), list[object]()
    with serving(fake):
        monitor = Monitor(fake.url, "r", on_answer=lambda answer: seen.append(answer["verdict"]))
        for step in range(2):
            monitor.log(step=step, **batch())
        assert monitor.flush()
        assert seen == ["accept", "warn"]
        monitor.close()


def test_a_refusal_is_no_answer_to_hand_over() -> None:
    fake, seen = Fake([Said(422), Said(503)], rest=Said(200, {"step": 1})), list[Mapping[str, Any]]()
    with serving(fake), Monitor(fake.url, "r", on_answer=seen.append) as monitor:
        for step in range(2):
            monitor.log(step=step, **batch())
        assert monitor.flush()
    assert seen == [{"step": 1}]


def test_what_a_callback_raises_is_said_once_and_the_batch_counts_as_sent(caplog: pytest.LogCaptureFixture) -> None:
    with serving(Fake()) as fake:
        monitor = Monitor(fake.url, "r", strict=True, on_answer=lambda answer: answer["gaps"])
        for step in range(3):
            monitor.log(step=step, **batch())
        monitor.close()
    assert (monitor.stats["sent"], monitor.stats["errors"]) == (3, 0)
    assert [record.getMessage() for record in caplog.records] == [
        "on_answer: KeyError: 'gaps' (said once; monitor.stats counts)"
    ]


def test_a_pickled_monitor_leaves_its_callback_behind() -> None:
    seen: list[Mapping[str, Any]] = []
    with serving(Fake()) as fake:
        monitor = Monitor(fake.url, "r", on_answer=lambda answer: seen.append(answer))
        with pickle.loads(pickle.dumps(monitor)) as copy:
            copy.log(step=0, **batch())
        assert copy.stats["sent"] == 1
        monitor.close()
    assert seen == []


def test_figures_are_asked_for_by_who_wants_answers_alone() -> None:
    with serving(Fake()) as fake:
        for on_answer in (None, lambda answer: None):
            with Monitor(fake.url, "r", on_answer=on_answer) as monitor:
                monitor.log(step=0, **batch())
                assert monitor.flush()
        assert [post.path for post in fake.posts()] == ["/v1/runs/r/batches?detail=none", "/v1/runs/r/batches"]


def test_a_service_that_knows_no_shorter_answers_gets_the_batch_without_asking_for_one() -> None:
    unknown = Said(422, {"type": "urn:offpolicy-monitor:problem:unknown-parameter", "detail": "detail"})
    with serving(Fake([unknown])) as fake, Monitor(fake.url, "r") as monitor:
        for step in range(2):
            monitor.log(step=step, **batch())
        assert monitor.flush()
        assert [post.path.partition("?")[2] for post in fake.posts()] == ["detail=none", "", ""]
        assert (monitor.stats["sent"], monitor.stats["errors"]) == (2, 0)
