"""Questions are written as the API reads them, and raise where there is no answer."""

from dataclasses import replace

import pytest
from offpolicy_monitor import Monitor
from offpolicy_monitor.client.read import Reader, Unreachable, asked, path
from offpolicy_monitor.errors import ConfigurationError, Refusal, Unavailable

from tests.client.fakes import Fake, serving
from tests.fixtures.http_stub import Said
from tests.fixtures.service import free_port


def test_a_query_repeats_the_names_of_lists_and_leaves_out_what_is_not_given() -> None:
    assert (
        asked({"field": ["a.b", "c"], "by": "step", "from": None, "points": 7}) == "?field=a.b&field=c&by=step&points=7"
    )
    assert asked({"from": None}) == ""


def test_a_name_cannot_leave_its_place_in_the_path() -> None:
    assert path("a/../b", "verdict") == "/v1/runs/a%2F..%2Fb/verdict"
    assert path("r1") == "/v1/runs/r1"


def test_nobody_at_an_address_is_said_so_and_is_an_oserror() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(OSError, match=f"no service answers at {url}"):
        Reader(url).verdict("r1")
    with Monitor(url, "r1") as monitor, pytest.raises(Unreachable):
        monitor.alerts()


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (Said(404, {"detail": "there is no run named r1"}), Refusal),
        (Said(429, {"detail": "later"}), Unavailable),
        (Said(503), Unavailable),
        (Said(200, text="<html>"), Unreachable),
    ],
)
def test_what_is_no_answer_raises(answer: Said, error: type[Exception]) -> None:
    fake = Fake()
    fake.answer = lambda asked: answer
    with serving(fake), pytest.raises(error):
        Reader(fake.url).diagnosis("r1", 3)


NAMED = {"detail": "no", "instance": "urn:offpolicy-monitor:request:3f9a01bc-7"}


@pytest.mark.parametrize("status", [404, 422, 429, 503])
@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (Said(0, NAMED), "no (request 3f9a01bc-7)"),
        (Said(0, NAMED, {"X-Request-Id": "of-a-proxy"}), "no (request 3f9a01bc-7)"),
        (Said(0, {"detail": "no"}, {"X-Request-Id": "3f9a01bc-7"}), "no (request 3f9a01bc-7)"),
        (Said(0, headers={"X-Request-Id": "a-1"}, text="<html>"), "the service answered {status} (request a-1)"),
        (Said(0, headers={"X-Request-Id": "a\x1b[2J"}, text=""), "the service answered {status} (request a?[2J)"),
        (Said(0, {"detail": "no", "instance": "/of/another/program"}), "no"),
    ],
    ids=["problem", "problem behind a proxy", "header", "no document", "escapes", "none"],
)
def test_what_is_raised_names_the_request_where_the_answer_does(status: int, answer: Said, told: str) -> None:
    fake = Fake()
    fake.answer = lambda asked: replace(answer, status=status)
    with serving(fake), pytest.raises((Refusal, Unavailable)) as raised:
        Reader(fake.url).verdict("r1")
    assert str(raised.value) == raised.value.detail == told.format(status=status)


def test_a_service_that_takes_too_long_is_given_up() -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(Unreachable, match=r"no answer within 0\.2 s"):
            Reader(url, timeout=0.2).verdict("r1")


def test_an_address_that_is_none_is_named_at_once() -> None:
    with pytest.raises(ConfigurationError, match="is no address"):
        Reader("monitor:8900")


def test_every_page_of_runs_is_read() -> None:
    fake = Fake()
    pages = [
        Said(200, {"runs": [{"run": "a"}], "next_cursor": "x"}),
        Said(200, {"runs": [{"run": "b"}], "next_cursor": None}),
    ]
    heard: list[str] = []
    fake.answer = lambda asked: (heard.append(asked.path), pages.pop(0))[1]
    with serving(fake):
        assert [run["run"] for run in Reader(fake.url).all_runs()] == ["a", "b"]
    assert heard == ["/v1/runs?limit=1000", "/v1/runs?limit=1000&cursor=x"]
