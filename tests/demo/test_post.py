import json
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest
from offpolicy_monitor.demo.endpoint import Endpoint
from offpolicy_monitor.demo.message import Message
from offpolicy_monitor.demo.post import Poster
from offpolicy_monitor.errors import ConfigurationError
from offpolicy_monitor.wire.frame import decode

from tests.demo.stub import StubService, serve, unused_url


def messages(count: int) -> Iterator[Message]:
    for step in range(count):
        yield Message({"step": step}, {"logprobs": np.array([-0.5 * step], np.float32)})


def post(url: str, count: int, capacity: int = 64) -> Poster:
    poster = Poster(Endpoint(url), "r1", "bitwise", capacity)
    for message in messages(count):
        poster.submit(message)
    poster.close()
    return poster


def steps(service: StubService) -> list[object]:
    return [decode(memoryview(body), 1 << 20, 32).envelope["step"] for body in service.bodies()]


def test_messages_arrive_in_order_on_the_runs_path(service: StubService) -> None:
    poster = post(service.url, 5)
    assert (poster.acknowledged, poster.failed, poster.dropped, poster.last_error) == (5, 0, 0, None)
    assert steps(service) == [0, 1, 2, 3, 4]
    posts = [request for request in service.requests if request.method == "POST"]
    assert {(request.path, request.media_type) for request in posts} == {
        ("/v1/runs/r1/batches", "application/vnd.safetensors")
    }


def test_the_profile_is_set_once_after_the_first_message(service: StubService) -> None:
    post(service.url, 3)
    assert [request.method for request in service.requests] == ["POST", "PATCH", "POST", "POST"]
    patch = service.requests[1]
    assert (patch.path, patch.media_type) == ("/v1/runs/r1", "application/json")
    assert json.loads(patch.body) == {"profile": "bitwise"}


def test_the_services_figures_are_kept(service: StubService) -> None:
    poster = post(service.url, 4)
    assert poster.latest == {"mismatch": 0.001, "staleness": 0.002}
    assert poster.mean("staleness") == pytest.approx(0.002)
    assert poster.mean("total") is None


@pytest.mark.parametrize(
    "answer", [{}, {"gaps": None}, {"gaps": {"mismatch": {}}}, {"gaps": {"mismatch": {"k3": None}}}]
)
def test_an_answer_without_a_figure_is_an_acknowledgement_all_the_same(answer: dict[str, object]) -> None:
    with serve(StubService(answer=answer)) as service:
        poster = post(service.url, 2)
    assert (poster.acknowledged, poster.failed) == (2, 0)
    assert poster.mean("mismatch") is None


def test_a_service_that_refuses_is_counted_and_quoted() -> None:
    with serve(StubService(status=503, answer={"detail": "the store is away"})) as service:
        poster = post(service.url, 3)
    assert (poster.acknowledged, poster.failed, poster.dropped) == (0, 3, 0)
    assert poster.last_error is not None
    assert poster.last_error.startswith("503 ")
    assert "the store is away" in poster.last_error
    assert len(service.bodies()) == 3


def test_nothing_that_listens_is_counted_and_never_raised() -> None:
    poster = post(unused_url(), 3)
    assert (poster.acknowledged, poster.failed, poster.dropped) == (0, 3, 0)
    assert poster.last_error is not None


def test_a_message_that_cannot_be_encoded_does_not_stop_those_after_it(service: StubService) -> None:
    poster = Poster(Endpoint(service.url), "r1", "bitwise", 64)
    poster.submit(Message({"step": object()}, {}))
    for message in messages(2):
        poster.submit(message)
    poster.close()
    assert (poster.acknowledged, poster.failed) == (2, 1)


def test_a_connection_that_the_service_closed_is_opened_again() -> None:
    with serve(StubService(close_after_answer=True)) as service:
        poster = post(service.url, 3)
    assert (poster.acknowledged, poster.failed) == (3, 0)
    assert steps(service) == [0, 1, 2]


def test_a_full_queue_drops_the_oldest_and_does_not_wait() -> None:
    hold = threading.Event()
    with serve(StubService(hold=hold)) as service:
        poster = Poster(Endpoint(service.url), "r1", "bitwise", capacity=3)
        upcoming = messages(10)
        poster.submit(next(upcoming))
        while not service.bodies():
            time.sleep(0.001)
        began = time.monotonic()
        for message in upcoming:
            poster.submit(message)
        assert time.monotonic() - began < 1.0
        assert poster.dropped == 6
        hold.set()
        poster.close()
        assert steps(service) == [0, 7, 8, 9]
    assert (poster.acknowledged, poster.failed, poster.dropped) == (4, 0, 6)


def test_closing_waits_no_longer_than_its_deadline_and_counts_the_rest() -> None:
    with serve(StubService(hold=threading.Event())) as service:
        poster = Poster(Endpoint(service.url), "r1", "bitwise", 64)
        for message in messages(4):
            poster.submit(message)
        while not service.bodies():
            time.sleep(0.001)
        began = time.monotonic()
        poster.close(deadline=0.05)
        assert time.monotonic() - began < 2.0
        assert poster.dropped == 3


@pytest.mark.parametrize("url", ["127.0.0.1:8900", "ftp://host", "http://", "http://host:port"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="is no address"):
        Endpoint(url)


def test_a_path_in_the_address_stands_before_every_path(service: StubService) -> None:
    post(service.url + "/monitor/", 1)
    assert service.requests[0].path == "/monitor/v1/runs/r1/batches"
