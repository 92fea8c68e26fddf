"""Addresses are checked when settings are read, and what is secret is not printed."""

import json
from pathlib import Path

import pytest
from offpolicy_monitor.cli import main
from offpolicy_monitor.cli.environment import read_settings
from offpolicy_monitor.errors import ConfigurationError
from offpolicy_monitor.settings import Settings


def test_alertmanagers_are_separated_by_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OFFPOLICY_ALERTMANAGER_URLS", " http://one:9093/ ,https://two/prefix,")
    assert Settings().alertmanager_urls == ("http://one:9093", "https://two/prefix")


def test_trusted_hosts_are_names_without_scheme_and_port(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OFFPOLICY_TRUSTED_HOSTS", " Monitor.Example. ,*.two,[::1], 10.0.0.1,")
    assert Settings().trusted_hosts == ("monitor.example", "*.two", "::1", "10.0.0.1")
    for wrong in ("http://one", "one:8900", "a*.one", "one/two", "one two"):
        monkeypatch.setenv("OFFPOLICY_TRUSTED_HOSTS", wrong)
        with pytest.raises(ConfigurationError, match="OFFPOLICY_TRUSTED_HOSTS"):
            read_settings()


def test_an_empty_variable_leaves_a_target_out(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WEBHOOK_URL", "WEBHOOK_SECRET", "ALERTMANAGER_URLS"):
        monkeypatch.setenv(f"OFFPOLICY_{name}", "")
    settings = Settings()
    assert (settings.webhook_url, settings.webhook_secret, settings.alertmanager_urls) == (None, None, ())


@pytest.mark.parametrize("field", ["webhook_url", "alertmanager_urls", "public_url"])
@pytest.mark.parametrize(
    "value", ["ftp://host/x", "host:9093", "http://", "http://host:port", "http://me:secret@host", "http://a host"]
)
def test_an_address_that_cannot_be_posted_to_is_refused_by_its_variable(
    monkeypatch: pytest.MonkeyPatch, field: str, value: str
) -> None:
    monkeypatch.setenv(Settings.variable(field), value)
    with pytest.raises(ConfigurationError, match=Settings.variable(field)) as refused:
        read_settings()
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("field", ["webhook_authorization", "alertmanager_authorization"])
def test_credentials_are_a_header_and_what_is_none_is_refused_without_being_shown(
    monkeypatch: pytest.MonkeyPatch, field: str
) -> None:
    for given, header in [
        ("Basic me:correct horse", "Basic bWU6Y29ycmVjdCBob3JzZQ=="),
        ("basic bWU6Y29ycmVjdCBob3JzZQ==", "basic bWU6Y29ycmVjdCBob3JzZQ=="),
        (" Bearer a.b-c_d== ", "Bearer a.b-c_d=="),
    ]:
        monkeypatch.setenv(Settings.variable(field), given)
        kept = getattr(Settings(), field)
        assert kept.get_secret_value() == header and "horse" not in repr(Settings())
    for wrong in ("hunter2", "Bearer", "Bearer two words", "Bearer a\nX-Other: b", "Digest me:hunter2"):
        monkeypatch.setenv(Settings.variable(field), wrong)
        with pytest.raises(ConfigurationError, match=Settings.variable(field)) as refused:
            read_settings()
        assert "hunter2" not in str(refused.value)
    monkeypatch.setenv(Settings.variable(field), "")
    assert getattr(Settings(), field) is None


def test_links_have_one_slash_between_their_parts() -> None:
    assert Settings(public_url="https://monitor.example/").public_url == "https://monitor.example"


@pytest.mark.parametrize("arguments", [["settings"], ["settings", "--json"]])
def test_secrets_are_not_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("OFFPOLICY_WEBHOOK_URL", "https://hooks.example/services/T0/B0/token")
    monkeypatch.setenv("OFFPOLICY_WEBHOOK_SECRET", "correct horse")
    assert main(arguments) == 0
    printed = capsys.readouterr().out
    assert "https://hooks.example/..." in printed
    assert "token" not in printed.split("OFFPOLICY_WEBHOOK_URL")[1][:80] and "correct horse" not in printed


def test_links_lead_to_where_the_service_listens_unless_told_otherwise() -> None:
    assert Settings(port=9000).public_url == "http://127.0.0.1:9000"
    assert Settings(port=9000, ssl_certfile=Path("certificate.pem")).public_url == "https://127.0.0.1:9000"
    assert Settings(port=0).public_url == "http://127.0.0.1:8900"
    assert Settings(port=9000, public_url="https://monitor.example").public_url == "https://monitor.example"


def test_settings_as_json_are_plain_values(capsys: pytest.CaptureFixture[str]) -> None:
    main(["settings", "--json"])
    rows = {row["variable"]: row["value"] for row in json.loads(capsys.readouterr().out)}
    assert rows["OFFPOLICY_ALERTMANAGER_URLS"] == ""
    assert rows["OFFPOLICY_WEBHOOK_SECRET"] is None
    assert rows["OFFPOLICY_PUBLIC_URL"] == "http://127.0.0.1:8900"
