"""Addresses are http or https URLs with a host, and loopback is known by its addresses and its one name."""

import pytest
from offpolicy_monitor.addresses import is_loopback, parts_of


def test_the_parts_of_an_address_are_scheme_host_port_and_path() -> None:
    parts = parts_of("https://monitor.example:8900/rl")
    assert (parts.scheme, parts.hostname, parts.port, parts.path) == ("https", "monitor.example", 8900, "/rl")


@pytest.mark.parametrize(
    "url",
    ["", "host:9093", "127.0.0.1:8900", "ftp://host/x", "http://", "http://:80", "http://host:port", "http://host:0",
     "http://host:65536", "http://[::1", "http://secret host"],
)  # fmt: skip
def test_what_is_no_address_is_refused_without_being_repeated(url: str) -> None:
    with pytest.raises(ValueError, match="must be an http or https URL with a host") as refused:
        parts_of(url)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost", "LOCALHOST."])
def test_loopback_is_known_by_address_and_by_name(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["10.0.0.1", "0.0.0.0", "::", "localhost.example", ""])
def test_what_others_reach_is_no_loopback(host: str) -> None:
    assert not is_loopback(host)
