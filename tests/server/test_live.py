"""The served process over real sockets: deadlines, budgets, clients that go away, and a stop under load."""

import http.client
import json
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from offpolicy_monitor.server.process import END_WITHIN

from tests.fixtures.application import good_frame, json_bytes, rows
from tests.fixtures.live import HEAD, Service, answer_of, serving
from tests.fixtures.prometheus import wait_for


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Three seconds for a body, a budget of one MiB."""
    limits = {"OFFPOLICY_BODY_TIMEOUT": "3", "OFFPOLICY_INFLIGHT_BYTES": str(1 << 20)}
    with serving(tmp_path_factory.mktemp("live"), **limits, OFFPOLICY_ADMISSION_TIMEOUT="0.3") as running:
        yield running


def test_a_body_that_does_not_arrive_is_408(service: Service) -> None:
    with service.connect() as connection:
        connection.sendall(HEAD + b"Content-Length: 100\r\n\r\n{")
        status, headers, body = answer_of(connection)
    assert (status, headers["content-type"]) == (408, "application/problem+json")
    assert b"OFFPOLICY_BODY_TIMEOUT" in body


@pytest.mark.parametrize(
    ("media_type", "most", "setting"),
    [
        (b"application/vnd.safetensors", 256 << 20, b"MAX_BODY_BYTES"),
        (b"application/json", 64 << 20, b"MAX_JSON_BYTES"),
    ],
)
def test_a_content_length_over_the_limit_is_413_before_the_body_is_sent(
    service: Service, media_type: bytes, most: int, setting: bytes
) -> None:
    head = HEAD.replace(b"application/json", media_type) + b"Content-Length: %d\r\nExpect: 100-continue\r\n\r\n"
    with service.connect() as connection:
        connection.sendall(head % (most + 1))
        status, _, body = answer_of(connection)
    assert status == 413 and b"OFFPOLICY_" + setting in body


def test_a_chunked_body_is_read(service: Service) -> None:
    body = json_bytes(step=11)
    with service.connect() as connection:
        connection.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        for part in (body[:10], body[10:]):
            connection.sendall(b"%x\r\n%s\r\n" % (len(part), part))
        connection.sendall(b"0\r\n\r\n")
        status, _, answer = answer_of(connection)
    assert (status, json.loads(answer)["tokens"]) == (200, 5)


def test_a_client_that_goes_away_leaves_nothing_behind(service: Service) -> None:
    before = rows(service.folder)
    body = json_bytes(step=99)
    with service.connect() as connection:
        connection.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body[:-1])
    wait_for(lambda: b'offpolicy_rejected_requests_total{reason="client-disconnected"} 1.0' in scrape(service))
    assert rows(service.folder) == before


def scrape(service: Service) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=30)
    connection.request("GET", "/metrics")
    body = connection.getresponse().read()
    connection.close()
    return body


def test_a_full_budget_is_503_with_retry_after_and_small_bodies_are_served_all_the_same(service: Service) -> None:
    """A share of the budget is never a large body's: an eighth of one MiB."""
    with service.connect() as holding, service.connect() as waiting:
        holding.sendall(HEAD + b"Content-Length: 1048576\r\n\r\n" + b" " * 100_000)
        wait_for(lambda: b"offpolicy_inflight_bytes 917504.0" in scrape(service), 2.0)
        waiting.sendall(HEAD + b"Content-Length: 100000\r\n\r\n")
        assert service.post(json_bytes(step=12))[0] == 200
        status, headers, body = answer_of(waiting)
        assert (status, headers["retry-after"]) == (503, "1")
        assert b"OFFPOLICY_INFLIGHT_BYTES" in body
    assert service.post(json_bytes(step=13))[0] == 200


@pytest.mark.parametrize("size, status", [(60_000, 200), (70_000, 431)])
def test_the_head_of_a_request_is_bounded(service: Service, size: int, status: int) -> None:
    with service.connect() as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Long: " + b"a" * size + b"\r\n\r\n")
        assert answer_of(connection)[0] == status


def test_a_head_without_end_is_cut_off(service: Service) -> None:
    with service.connect() as connection, pytest.raises(OSError):
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Long: ")
        for _ in range(10_000):
            connection.sendall(b"a" * 65_536)
        raise AssertionError("600 MB of head were taken")


def test_bytes_that_are_no_http_are_400_and_the_service_goes_on(service: Service) -> None:
    with service.connect() as connection:
        connection.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n")
        assert connection.recv(65_536).startswith(b"HTTP/1.1 400")
    assert service.post(json_bytes(step=13))[0] == 200


def test_a_connection_serves_one_request_after_the_other(service: Service) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=30)
    for step, body in ((21, json_bytes(step=21)), (22, json_bytes(step="x")), (23, json_bytes(step=23))):
        connection.request("POST", "/v1/runs/r1/batches", body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        assert (response.status, bool(response.read())) == (422 if step == 22 else 200, True)
    connection.close()


def test_a_stop_under_load_answers_every_request_in_flight(tmp_path: Path) -> None:
    """Each client counts a request only once its whole body is with the service; afterwards it may find nobody."""
    answered: list[int] = []
    stopping = threading.Event()

    def client(number: int, service: Service) -> None:
        for step in range(100_000):
            frame = good_frame(step=step)
            try:
                connection = service.connect()
                head = HEAD.replace(b"r1", b"c%d" % number).replace(b"json", b"vnd.safetensors")
                connection.sendall(head + b"Content-Length: %d\r\n\r\n" % len(frame) + frame)
            except OSError:
                return
            try:
                answered.append(answer_of(connection)[0])
            except (OSError, http.client.HTTPException):
                # A connection that was made in the instant of the stop may be closed before it is read.
                assert stopping.is_set()
                return
            finally:
                connection.close()

    with serving(tmp_path) as service:
        threads = [threading.Thread(target=client, args=(number, service)) for number in range(6)]
        for thread in threads:
            thread.start()
        while len(answered) < 30:
            time.sleep(0.01)
        stopping.set()
        service.process.send_signal(signal.SIGTERM)
        status = service.process.wait(2 * END_WITHIN)
        for thread in threads:
            thread.join(20)
    assert status == 0
    assert set(answered) == {200}
    assert rows(tmp_path)["shards"] == len(answered)
