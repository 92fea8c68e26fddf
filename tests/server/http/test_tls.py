"""The service by https: who reads slowly, pipelines or says nothing is bounded as in the clear; files that cannot be
used are refused by name, and files that change are read again.
"""

import asyncio
import contextlib
import http.client
import json
import os
import re
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from offpolicy_monitor.client import Monitor
from offpolicy_monitor.client.connection import Connection
from offpolicy_monitor.client.read import Reader, Unreachable
from offpolicy_monitor.errors import ConfigurationError
from offpolicy_monitor.server.http.handshakes import MOST, Accepting, Handshakes
from offpolicy_monitor.server.http.tls import Certificate
from offpolicy_monitor.settings import Settings

from tests.fixtures.application import json_bytes
from tests.fixtures.forks import ended
from tests.fixtures.live import HEAD, answer_of
from tests.fixtures.service import COMMAND, clean_environment
from tests.fixtures.tls import SecureService, make_certificate, serving_tls

ROOT = Path(__file__).resolve().parents[3]
GET = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureService]:
    folder = tmp_path_factory.mktemp("tls")
    limits = {"OFFPOLICY_BODY_TIMEOUT": "1", "OFFPOLICY_WRITE_TIMEOUT": "1"}
    with serving_tls(folder, make_certificate(folder), limits) as running:
        yield running


def test_the_start_says_https_and_a_trainer_posts_to_it_by_a_private_authority(
    service: SecureService, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert f"  page      {service.url}/\n" in service.log.read_text()
    monkeypatch.setenv("SSL_CERT_FILE", str(service.folder / "service.pem"))
    with Monitor(service.url, run="by-https") as monitor:
        for step in range(3):
            monitor.log(step=step, sampling_logprobs=[[-1.0, -2.0]], old_logprobs=[[-1.5, -2.0]])
        assert monitor.flush(20)
    assert [run["run"] for run in Reader(service.url).all_runs()] == ["by-https"]
    listed = subprocess.run([*COMMAND, "runs", "--url", service.url], capture_output=True, text=True, check=True)
    assert "by-https" in listed.stdout


def test_a_kept_connection_is_used_again(service: SecureService, monkeypatch: pytest.MonkeyPatch) -> None:
    """TLS 1.3 sends tickets when it likes, which are not the end of a connection."""
    monkeypatch.setenv("SSL_CERT_FILE", str(service.folder / "service.pem"))
    with contextlib.closing(Connection(service.url, 20.0, None)) as connection:
        connections = set()
        for _ in range(3):
            assert connection.exchange("GET", "/healthz").status == 200
            assert connection._connection is not None
            connections.add(connection._connection.sock.getsockname())
    assert len(connections) == 1


def test_who_does_not_know_the_authority_is_told_what_names_it(service: SecureService) -> None:
    with pytest.raises(Unreachable, match=r"not trusted \(self-signed certificate\); SSL_CERT_FILE names"):
        Reader(service.url).all_runs()


def test_a_large_body_comes_through(service: SecureService) -> None:
    body = json_bytes(step=7) + b" " * (8 << 20)
    with service.connect() as connection:
        connection.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        assert answer_of(connection)[0] == 200


def test_what_is_pipelined_is_answered(service: SecureService) -> None:
    before = service.at_rest()
    with service.connect() as connection:
        connection.settimeout(0.5)
        unsent, answered, left, deadline = memoryview(GET * 2000), 0, b"", time.monotonic() + 30
        while answered < 2000 and time.monotonic() < deadline:
            if unsent:
                unsent = unsent[connection.send(unsent[:4096]) :]
            with contextlib.suppress(TimeoutError):
                left += connection.recv(1 << 16)
            answered += left.count(b"HTTP/1.1 200 OK")
            left = left[-14:]
    assert answered == 2000
    assert service.peak() - before < 30 << 20


def test_who_takes_nothing_of_the_answers_is_cut_off(service: SecureService) -> None:
    before = service.at_rest()
    with service.connect() as connection:
        connection.settimeout(5.0)
        with pytest.raises(OSError):
            for _ in range(20_000):
                connection.sendall(GET.replace(b"/healthz", b"/docs/openapi.json") * 50)
    assert service.peak() - before < 60 << 20


def test_an_answer_before_the_end_of_the_body_is_read(service: SecureService) -> None:
    with service.connect() as connection:
        connection.sendall(HEAD.replace(b"json", b"xml") + b"Content-Length: 3000000\r\n\r\n" + b"a" * 3_000_000)
        status, headers, _ = answer_of(connection)
    assert (status, headers["connection"]) == (415, "close")


def test_a_body_that_stands_still_is_408(service: SecureService) -> None:
    with service.connect() as connection:
        connection.sendall(HEAD + b"Content-Length: 50\r\n\r\n{")
        assert answer_of(connection)[0] == 408


def test_those_that_never_finish_a_handshake_take_neither_room_nor_time(service: SecureService) -> None:
    descriptors = Path("/proc") / str(service.process.pid) / "fd"
    with contextlib.ExitStack() as stack:
        before = len(list(descriptors.iterdir()))
        silent = [stack.enter_context(service.in_the_clear()) for _ in range(3 * MOST)]
        silent[-1].sendall(b"\x16\x03\x01\x02\x00\x01")
        with service.connect() as connection:
            connection.sendall(GET)
            assert answer_of(connection)[0] == 200
        assert len(list(descriptors.iterdir())) - before <= MOST + 5
        assert silent[0].recv(1) == b""


def test_of_many_that_come_at_once_none_is_cut_off(files: Path) -> None:
    class Greets(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            assert isinstance(transport, asyncio.Transport)
            transport.write(b"hello")
            transport.close()

    trusting = ssl.create_default_context(cafile=str(files / "a.pem"))

    async def greeted(port: int) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting, server_hostname="localhost")
        found = await reader.read()
        writer.close()
        return found

    async def all_at_once() -> list[bytes]:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            handshakes = Handshakes(_certificate(files, "a").context, Greets, most=3, grace=60)
            server = Accepting(listener, 128, handshakes)
            found = await asyncio.gather(*(greeted(listener.getsockname()[1]) for _ in range(24)))
            server.close()
            await asyncio.gather(server.wait_closed(), return_exceptions=True)
        return found

    assert asyncio.run(all_at_once()) == [b"hello"] * 24


def test_plain_http_is_not_answered(service: SecureService) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=10)
    with pytest.raises(OSError):
        connection.request("GET", "/healthz")
        connection.getresponse()
    assert "Traceback" not in service.log.read_text()


def test_a_service_by_https_ends_while_clients_say_nothing(tmp_path: Path) -> None:
    with serving_tls(tmp_path, make_certificate(tmp_path), {}) as service, service.in_the_clear(), service.connect():
        began = time.monotonic()
        service.process.terminate()
        assert service.process.wait(20) == 0
        assert time.monotonic() - began < 5


def test_the_health_check_of_the_image_finds_it_healthy_and_a_service_that_is_gone_is_not(
    service: SecureService,
) -> None:
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", "")
    check = json.loads(re.findall(r"^HEALTHCHECK .*?CMD (\[.*\])", text, re.MULTILINE)[0])
    for settings, healthy in [
        ({"OFFPOLICY_PORT": str(service.port), "OFFPOLICY_SSL_CERTFILE": "chain.pem"}, True),
        ({"OFFPOLICY_PORT": str(service.port)}, False),
    ]:
        checked = subprocess.run([sys.executable, *check[1:]], env=clean_environment() | settings, capture_output=True)
        assert (checked.returncode == 0) is healthy, checked.stderr.decode()


@pytest.mark.parametrize(
    ("settings", "refusal"),
    [
        ({"CERTFILE": "absent.pem"}, r"OFFPOLICY_SSL_CERTFILE: cannot read .*absent.pem: No such file"),
        ({"CERTFILE": "a.pem", "KEYFILE": "."}, r"OFFPOLICY_SSL_KEYFILE: cannot read .*: Is a directory"),
        ({"KEYFILE": "a.key"}, "OFFPOLICY_SSL_KEYFILE is set without a certificate: set OFFPOLICY_SSL_CERTFILE too"),
        ({"CERTFILE": "a.pem", "KEYFILE": "b.key"}, "the key .*b.key does not belong to the certificate .*a.pem"),
        ({"CERTFILE": "a.pem"}, "a.pem and .*a.pem hold no certificate with its key in PEM"),
        ({"CERTFILE": "text", "KEYFILE": "a.key"}, "text and .*a.key hold no certificate with its key in PEM"),
        ({"CERTFILE": "c.pem", "KEYFILE": "c.key"}, "c.key is encrypted, and OFFPOLICY_SSL_KEYFILE_PASSWORD does not"),
        (
            {"CERTFILE": "c.pem", "KEYFILE": "c.key", "KEYFILE_PASSWORD": "wrong"},
            "c.key is encrypted, and OFFPOLICY_SSL_KEYFILE_PASSWORD does not",
        ),
    ],
)
def test_files_that_cannot_be_used_are_refused_by_name(
    files: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], refusal: str
) -> None:
    for name, value in settings.items():
        monkeypatch.setenv(f"OFFPOLICY_SSL_{name}", value if name == "KEYFILE_PASSWORD" else str(files / value))
    with pytest.raises(ConfigurationError, match=refusal) as refused:
        Certificate(Settings())
    assert "wrong" not in str(refused.value)


def test_the_program_refuses_such_files_and_an_empty_variable_is_none(
    files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = {**clean_environment(), "OFFPOLICY_DATABASE_URL": f"sqlite:///{files / 'unused.db'}"}
    arguments = ["serve", "--port", "0", "--ssl-certfile", str(files / "a.pem"), "--ssl-keyfile", str(files / "b.key")]
    status, said = ended(arguments, environment)
    assert status == 3
    assert "does not belong to the certificate" in said
    monkeypatch.setenv("OFFPOLICY_SSL_CERTFILE", "")
    assert Settings().ssl_certfile is None


def test_an_encrypted_key_is_opened_by_its_password(files: Path) -> None:
    assert shown(_certificate(files, "c", "correct horse").context, files / "c.pem")


def test_files_that_change_are_shown_to_who_comes_next(files: Path, tmp_path: Path) -> None:
    used = _certificate(tmp_path, "a") if _copy(files, "a", tmp_path, "a") else None
    assert used is not None and shown(used.context, files / "a.pem")
    (tmp_path / "a.pem").write_bytes((files / "b.pem").read_bytes())
    _touch(tmp_path / "a.pem", 1)
    used.renew()  # half of what changes is there
    assert shown(used.context, files / "a.pem")
    (tmp_path / "a.key").write_bytes((files / "b.key").read_bytes())
    _touch(tmp_path / "a.key", 2)
    used.renew()
    assert shown(used.context, files / "b.pem")
    (tmp_path / "a.key").unlink()
    used.renew()
    assert shown(used.context, files / "b.pem")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificates a, b and c, the key of c encrypted, and a text."""
    folder = tmp_path_factory.mktemp("files")
    for name, password in (("a", None), ("b", None), ("c", "correct horse")):
        make_certificate(folder, name, password)
    (folder / "text").write_text("no certificate")
    return folder


def _certificate(folder: Path, name: str, password: str | None = None) -> Certificate:
    named = {"ssl_certfile": folder / f"{name}.pem", "ssl_keyfile": folder / f"{name}.key"}
    return Certificate(Settings(**named, ssl_keyfile_password=password))


def _copy(folder: Path, name: str, to: Path, as_name: str) -> bool:
    for ending in ("pem", "key"):
        (to / f"{as_name}.{ending}").write_bytes((folder / f"{name}.{ending}").read_bytes())
    return True


def _touch(path: Path, seconds: int) -> None:
    """A time of writing that no clock is too coarse for."""
    later = time.time_ns() + seconds * 1_000_000_000
    os.utime(path, ns=(later, later))


def shown(context: ssl.SSLContext, expected: Path) -> bool:
    """Whether a handshake in memory shows this certificate."""
    asking, answering = ssl.MemoryBIO(), ssl.MemoryBIO()
    trusting = ssl.create_default_context(cafile=str(expected))
    client = trusting.wrap_bio(answering, asking, server_hostname="localhost")
    server = context.wrap_bio(asking, answering, server_side=True)
    for _ in range(4):
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError:
                return False
    return client.getpeercert(True) == ssl.PEM_cert_to_DER_cert(expected.read_text())
