"""Requests are answered under the service's own names alone, so that no page can rebind its name to this machine."""

from pathlib import Path

import pytest

from tests.fixtures.application import Application, Client, batch
from tests.fixtures.live import answer_of, serving

OWN = ["localhost", "localhost:8900", "LOCALHOST", "localhost.", "127.0.0.1:1", "127.9.9.9", "[::1]", "[::1]:8900"]
FOREIGN = [
    *("evil.example", "evil.example:8900", "localhost.evil.example", "127.0.0.1.evil.example", "0.0.0.0:8900"),
    *(
        "192.168.1.7",
        "[::2]",
        "",
        " ",
        "a b",
        "evil.example/@localhost",
        "localhost@evil.example",
        "localhost:x",
        "[::1",
    ),
]


def test_a_page_that_rebinds_its_name_can_neither_read_nor_delete(application: Application) -> None:
    with application() as client:
        assert client.post("/v1/runs/r1/batches", json=batch()).status_code == 200
        for method in ("GET", "DELETE", "PATCH"):
            refused = client.request(method, "/v1/runs/r1", headers={"Host": "evil.example:8900"})
            assert (refused.status_code, refused.headers["content-type"]) == (421, "application/problem+json")
            assert "evil.example:8900" in refused.json()["detail"]
            assert "OFFPOLICY_TRUSTED_HOSTS" in refused.json()["detail"]
        assert client.get("/v1/runs/r1").status_code == 200
        assert 'offpolicy_rejected_requests_total{reason="untrusted-host"} 3.0' in client.get("/metrics").text


@pytest.mark.parametrize("host", OWN)
def test_every_spelling_of_loopback_is_answered(shared_client: Client, host: str) -> None:
    assert shared_client.get("/healthz", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("host", FOREIGN)
def test_every_other_host_is_421_on_every_path(shared_client: Client, host: str) -> None:
    for path in ("/", "/healthz", "/metrics", "/nowhere"):
        assert shared_client.get(path, headers={"Host": host}).status_code == 421


@pytest.mark.parametrize(
    "settings, answered, refused",
    [
        ({"public_url": "https://Monitor.Example:8443/x"}, ["monitor.example", "MONITOR.example."], ["example"]),
        ({"trusted_hosts": "one, *.two.example,"}, ["one:80", "a.two.example", "a.b.two.example"], ["two.example"]),
        ({"trusted_hosts": "one"}, ["localhost", "127.0.0.1"], ["xone", "one.example"]),
        ({"trusted_hosts": "10.1.2.3,[fe80::1]"}, ["10.1.2.3:8900", "[FE80::1]:8900"], ["10.1.2.4"]),
        ({"trusted_hosts": "*"}, ["evil.example", ""], []),
        ({"host": "0.0.0.0"}, ["evil.example", "10.0.0.1"], []),
        ({"host": "0.0.0.0", "trusted_hosts": "service"}, ["service:8900", "127.0.0.1:8900"], ["evil.example"]),
        ({"host": "::1"}, ["localhost"], ["evil.example"]),
    ],
)
def test_names_beside_loopback_come_from_the_settings(
    application: Application, settings: dict[str, str], answered: list[str], refused: list[str]
) -> None:
    with application(**settings) as client:
        for host, status in [*((host, 200) for host in answered), *((host, 421) for host in refused)]:
            assert client.get("/healthz", headers={"Host": host}).status_code == status, host


def test_over_sockets_a_host_is_sent_once_and_http_1_0_may_do_without(tmp_path: Path) -> None:
    heads = [
        (b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", 200),
        (b"GET /healthz HTTP/1.1\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\nHost: evil.example\r\n\r\n", 421),
        (b"GET /healthz HTTP/1.0\r\n\r\n", 200),
        (b"GET /healthz HTTP/1.0\r\nHost: evil.example\r\n\r\n", 421),
    ]
    with serving(tmp_path) as service:
        for head, status in heads:
            with service.connect() as connection:
                connection.sendall(head)
                assert answer_of(connection)[0] == status, head
