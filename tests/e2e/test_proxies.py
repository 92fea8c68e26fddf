"""The proxies of deploy/ before a real service: what passes, and what they end before it gets there."""

import contextlib
import http.client
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from offpolicy_monitor.client import Monitor
from offpolicy_monitor.client.read import Reader

from tests.fixtures.application import json_bytes
from tests.fixtures.live import HEAD, answer_of, serving
from tests.fixtures.proxies import EXAMPLES, behind
from tests.fixtures.service import free_port
from tests.fixtures.tls import SecureService, make_certificate

MEBIBYTE = 1 << 20


@pytest.fixture(scope="module", params=sorted(EXAMPLES))
def proxy(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureService]:
    folder = tmp_path_factory.mktemp(request.param)
    shown = make_certificate(folder)
    settings = {"OFFPOLICY_PUBLIC_URL": "https://monitor.example", "OFFPOLICY_BODY_IDLE_TIMEOUT": "1"}
    with serving(folder, **settings) as service, behind(request.param, service.port, shown, folder) as running:
        yield running


def post(proxy: SecureService, body: bytes) -> tuple[int, bytes]:
    """Status and body of the answer to a batch."""
    with contextlib.closing(
        http.client.HTTPSConnection("127.0.0.1", proxy.port, timeout=30, context=proxy.trusted)
    ) as to:
        to.request("POST", "/v1/runs/large/batches", body, {"Content-Type": "application/json"})
        answer = to.getresponse()
        return answer.status, answer.read()


def test_a_trainer_posts_and_a_reader_reads(proxy: SecureService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(proxy.folder / "service.pem"))
    with Monitor(proxy.url, run="trainer") as monitor:
        for step in range(3):
            monitor.log(step=step, sampling_logprobs=[[-1.0, -2.0]], old_logprobs=[[-1.5, -2.0]])
        assert monitor.flush(20)
        assert monitor.stats["sent"] == 3
    assert "trainer" in [run["run"] for run in Reader(proxy.url).all_runs()]


def test_a_batch_of_some_mebibytes_passes_and_one_over_the_bound_is_413(proxy: SecureService) -> None:
    body = json_bytes(step=1)
    assert post(proxy, body + b" " * (6 * MEBIBYTE))[0] == 200
    with contextlib.suppress(OSError):  # the proxy may end the connection while the body is still being sent
        assert post(proxy, body + b" " * (9 * MEBIBYTE))[0] == 413


def test_events_come_at_once_and_the_stream_outlives_every_wait(proxy: SecureService) -> None:
    with proxy.connect() as stream:
        stream.sendall(b"GET /v1/events?run=large HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        stream.settimeout(10)
        received = b""
        while b"retry: " not in received:
            received += stream.recv(4096)
        time.sleep(2.5)  # longer than the proxy waits for a head
        posted = time.monotonic()
        assert post(proxy, json_bytes(step=2))[0] == 200
        while b"event: step" not in received:
            piece = stream.recv(4096)
            assert piece, received
            received += piece
        assert time.monotonic() - posted < 5


def test_a_change_from_a_page_of_the_service_passes_and_one_from_elsewhere_does_not(proxy: SecureService) -> None:
    assert post(proxy, json_bytes(step=3))[0] == 200
    answers = []
    for origin in (proxy.url, "https://evil.example"):
        patch = b"PATCH /v1/runs/large HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nOrigin: %s\r\n" % (proxy.port, origin.encode())
        with proxy.connect() as connection:
            connection.sendall(
                patch + b"Content-Type: application/json\r\nContent-Length: 15\r\n\r\n" + b'{"pinned":true}'
            )
            answers.append(answer_of(connection)[0])
    assert answers[1] == 403 and answers[0] != 403


def test_a_head_that_is_too_long_is_refused_by_the_proxy(proxy: SecureService) -> None:
    with proxy.connect() as connection:
        with contextlib.suppress(OSError):
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Long: " + b"a" * 200_000 + b"\r\n\r\n")
        status, headers, _ = answer_of(connection)
    assert status in (400, 431)
    assert "problem" not in headers.get("content-type", "")


def test_a_head_that_never_ends_is_cut_off(proxy: SecureService) -> None:
    with proxy.connect() as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ")
        began = time.monotonic()
        connection.settimeout(20)
        with contextlib.suppress(ConnectionError):
            assert not connection.recv(4096).startswith(b"HTTP/1.1 200")
        assert time.monotonic() - began < 8


def test_a_body_that_stands_still_is_ended_by_the_service(proxy: SecureService) -> None:
    with proxy.connect() as connection:
        connection.sendall(HEAD + b"Content-Length: 5000000\r\n\r\n" + b"{" * 200_000)
        received = b""
        with contextlib.suppress(ConnectionError):
            while piece := connection.recv(4096):
                received += piece
    assert received.startswith(b"HTTP/1.1 408 ") or received == b""


@pytest.mark.parametrize(("host", "status"), [("monitor.example", 200), ("evil.example", 421)])
def test_the_name_that_was_asked_for_reaches_the_service(proxy: SecureService, host: str, status: int) -> None:
    with proxy.connect() as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: %s\r\n\r\n" % host.encode())
        answered, _, body = answer_of(connection)
    # Caddy itself answers other names than its own, with nothing.
    assert answered == status or (host, body) == ("evil.example", b"")


def test_a_trainer_is_told_to_try_again_while_the_service_is_away(tmp_path: Path) -> None:
    shown = make_certificate(tmp_path)
    for name in sorted(EXAMPLES):
        (tmp_path / name).mkdir()
        with behind(name, free_port(), shown, tmp_path / name, answering=False) as proxy:
            assert post(proxy, b"{}")[0] == 502
