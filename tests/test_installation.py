"""doctor without a run: each part of an installation is looked at, and what is wrong is told with what to do."""

import json
import os
import socket
import ssl
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from offpolicy_monitor import __version__
from offpolicy_monitor.access import Scope, made
from offpolicy_monitor.cli import main
from offpolicy_monitor.cli.installation import Place, _apart, _database, _shut, look
from offpolicy_monitor.settings import Settings
from offpolicy_monitor.store import access as book
from offpolicy_monitor.store import migrate
from offpolicy_monitor.store.clock import ahead

from tests.fixtures.http_stub import Asked, Said, answering
from tests.fixtures.service import free_port, service
from tests.fixtures.tls import make_certificate

#: This machine by a name that does not tell that it is.
ELSEWHERE = "127.1"
READY = {"status": "ready", "checks": {"store": True}, "measured_by": "torch"}


def found(place: Place) -> dict[str, list[tuple[str, str]]]:
    """Level and text of every finding, by check."""
    told: dict[str, list[tuple[str, str]]] = {}
    for name, finding in look(place):
        assert finding.level == "ok" or finding.change or finding.said, name
        told.setdefault(name, []).append((finding.level, f"{finding.said} | {finding.change}"))
    return told


def levels(told: dict[str, list[tuple[str, str]]]) -> dict[str, list[str]]:
    return {name: [level for level, _ in findings] for name, findings in told.items()}


def place(url: str, database: str, prometheus: str | None = None, **settings: Any) -> Place:
    chosen: dict[str, Any] = {"port": free_port(), "device": "cpu", "torch_compile": False, **settings}
    return Place(Settings(database_url=database, **chosen), url, prometheus, timeout=5.0)


def scraping(target: str, health: str) -> dict[str, Any]:
    """What Prometheus says of a target."""
    one = {"scrapeUrl": f"{target}/metrics", "health": health, "lastError": "no route", "labels": {"job": "x"}}
    other = {"scrapeUrl": "http://node:9100/metrics", "health": "up", "labels": {"job": "node"}}
    return {"status": "success", "data": {"activeTargets": [one, other]}}


def test_a_service_that_runs_is_found_well_with_all_around_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with service(tmp_path) as served:
        url = served.url

        def answer(asked: Asked) -> Said:
            document = scraping(url, "up") if "targets" in asked.path else {"versionInfo": {"version": "0.27"}}
            return Said(document=document)

        with answering(answer) as around, pytest.MonkeyPatch.context() as variables:
            variables.setenv("OFFPOLICY_PORT", str(served.port))
            variables.setenv("OFFPOLICY_ALERTMANAGER_URLS", around)
            database = f"sqlite:///{tmp_path / 'service.db'}"
            arguments = ["--url", url, "--database-url", database, "--prometheus", around]
            assert main(["doctor", "--json", *arguments]) == 0
            rows = json.loads(capsys.readouterr().out)["findings"]
            assert main(["doctor", *arguments]) == 0
    told = [(row["check"], row["level"]) for row in rows]
    well = ("database", "disk", "clock", "port", "service", "access", "prometheus", "alertmanager")
    assert [name for name, level in told if level == "ok" and name in well] == [
        "database", "disk", "clock", "clock", "port", "service", "access", "prometheus", "alertmanager",
    ]  # fmt: skip
    assert {level for name, level in told if name != "device"} == {"ok"}
    shown = capsys.readouterr().out
    assert f"a service of version {__version__} has port {served.port}" in shown
    assert f"is at revision {migrate.head()}" in shown


@pytest.fixture(scope="module")
def around() -> Iterator[str]:
    """A service that is not ready, and a Prometheus that cannot reach it, which only tells a known user."""
    not_ready = {"checks": {"store": False}, "reasons": {"store": "the database is locked", "device": "is warming up"}}
    targets: dict[str, Any] = {}

    def answer(asked: Asked) -> Said:
        if "targets" in asked.path:
            known = asked.headers.get("Authorization") in (None, "Basic dXNlcjpzZWNyZXQ=")
            return Said(document=targets) if known else Said(401)
        if asked.path == "/readyz":
            return Said(503, not_ready)
        return Said(document={"version": "0.0.1"})

    with answering(answer) as url:
        targets |= scraping(url, "down")
        yield url


def test_what_is_wrong_around_is_told_with_the_reason(around: str, sqlite_url: str) -> None:
    here = place(around, sqlite_url, around.replace("//", "//user:secret@"), alertmanager_urls=(around,))
    told = found(here)
    assert levels(told) | {"device": []} == {
        "database": ["ok"], "disk": ["ok"], "device": [], "clock": ["ok", "ok"], "port": ["ok"],
        "service": ["fail", "fail"], "prometheus": ["fail"], "alertmanager": ["fail"],
    }  # fmt: skip
    assert "not ready: store | the database is locked" in told["service"][0][1]
    assert "no route" in told["prometheus"][0][1]
    assert "secret" not in str(told)
    elsewhere = found(place("http://127.0.0.1:9", sqlite_url, around))
    assert "none is 127.0.0.1:9" in elsewhere["prometheus"][0][1]
    [(level, said)] = elsewhere["service"]
    assert level == "warn" and "no service answers" in said and "start it" in said


def test_a_database_that_cannot_be_used_is_told_and_none_is_made(tmp_path: Path) -> None:
    file = tmp_path / "offpolicy.db"
    here = place("http://127.0.0.1:9", f"sqlite:///{file}")
    [(level, said)] = found(here)["database"]
    assert (level, file.exists()) == ("warn", False) and "serve makes it" in said
    for content, reason in ((b"", "is empty"), (b"no database " * 999, "is damaged: file is not a database")):
        file.write_bytes(content)
        [(level, said)] = found(here)["database"]
        assert level == "fail" and reason in said and "restore a backup" in said
        assert file.read_bytes() == content


def test_a_place_that_this_user_may_not_write_is_told(tmp_path: Path, sqlite_url: str) -> None:
    file = Path(sqlite_url.removeprefix("sqlite:///"))
    assert _shut(file) is None and _shut(tmp_path / "new" / "offpolicy.db") is None
    folder = tmp_path / "folder"
    folder.mkdir(mode=0o500)
    before = os.geteuid()
    try:
        if before == 0:  # who may write everything
            os.seteuid(65534)
        shut = _shut(folder / "new" / "offpolicy.db")
        told = list(_database(place("http://127.0.0.1:9", f"sqlite:///{folder}/offpolicy.db")))
    finally:
        os.seteuid(before)
    assert shut is not None and shut in (folder, *folder.parents)
    assert told[0].level == "fail" and f"{shut} cannot be written by this user" in told[0].said


def test_another_program_on_the_port_is_told_from_a_service(sqlite_url: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        here = place("http://127.0.0.1:9", sqlite_url, port=port)
        [(level, said)] = found(Place(here.settings, here.url, None, timeout=0.2))["port"]
    assert level == "fail" and f"another program has port {port}" in said and "ss -ltnp" in said


def test_a_service_by_https_has_its_port_and_who_does_not_know_its_authority_is_told(
    tmp_path: Path, sqlite_url: str
) -> None:
    files = make_certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.file, files.key)
    with answering(lambda asked: Said(document={"version": "0.0.1"}), context=context) as url:
        secure: dict[str, Any] = {"port": urlsplit(url).port, "ssl_certfile": files.file, "ssl_keyfile": files.key}
        told = found(place(url, sqlite_url, **secure))
    assert told["port"][0][0] == "ok" and "a service of version 0.0.1" in told["port"][0][1]
    [(level, said)] = told["service"]
    assert level == "warn" and "certificate verify failed" in said and "SSL_CERT_FILE" in said


def test_a_token_goes_nowhere_but_where_it_is_meant_for(sqlite_url: str) -> None:
    heard = list[str]()

    def other(asked: Asked) -> Said:
        heard.append(asked.path)
        return Said(document=READY)

    with answering(other) as elsewhere, answering(lambda asked: Said(302, headers={"Location": elsewhere})) as url:
        [(level, said)] = found(replace(place(url, sqlite_url), token="opm_1_2"))["service"]
    assert not heard and level == "fail" and f"leads to {elsewhere}" in said
    told = found(replace(place("http://127.0.0.1:9", sqlite_url), token="opm_1\n2"))
    assert told["access"][0][0] == "fail" and "OFFPOLICY_TOKEN" in told["access"][0][1] and "opm_1" not in str(told)


def test_who_is_let_in_is_told_and_why_a_token_is_refused(tmp_path: Path, sqlite_url: str) -> None:
    here = place("http://127.0.0.1:9", sqlite_url, auth="required")
    [(level, said)] = found(here)["access"]
    assert level == "warn" and "nobody is let in | offpolicy-monitor token create" in said
    wanted: tuple[tuple[Scope, float | None], ...] = (("read", None), ("ingest", None), ("read", 1.0))
    (reader, known), (trainer, trainers), (over, of_over) = (made([one], "*", "", 0.0, ends) for one, ends in wanted)
    for token in (over, reader):
        book.enter(sqlite_url, token)
        assert ("access" in found(here)) == (token is over)
    book.enter(sqlite_url, trainer)
    with service(tmp_path, OFFPOLICY_DATABASE_URL=sqlite_url, OFFPOLICY_AUTH="required") as served:

        def told(token: str | None) -> tuple[str, str]:
            [finding] = found(replace(here, url=served.url, token=token))["access"]
            return finding

        assert told(None) == (
            "ok", f"{served.url} lets in nobody without an access token, and OFFPOLICY_TOKEN is not set | ",
        )  # fmt: skip
        assert told(known) == ("ok", f"{served.url} answers with OFFPOLICY_TOKEN | ")
        assert told(trainers) == ("ok", f"{served.url} takes OFFPOLICY_TOKEN, for posting alone | ")
        level, said = told(of_over)
        assert level == "fail" and f"refuses OFFPOLICY_TOKEN: the token {over.id} is expired" in said
        level, said = told("opm_wrong")
        assert level == "fail" and "this is no token of this service" in said and "token list" in said


def test_a_service_elsewhere_that_asks_for_no_token_is_told(sqlite_url: str) -> None:
    with answering(lambda _: Said(document={"runs": []})) as url:
        near, elsewhere = place(url, sqlite_url), place(url.replace("127.0.0.1", ELSEWHERE), sqlite_url)
        assert found(near)["access"] == [("ok", f"{url} asks for no access token | ")]
        [(level, said)] = found(elsewhere)["access"]
    assert level == "warn" and "asks for no access token | make one" in said


def test_what_to_do_is_told_where_the_database_is_away_or_prometheus_has_no_token(sqlite_url: str) -> None:
    told = found(place("http://127.0.0.1:9", "postgresql+psycopg://u:secret@127.0.0.1:9/x", auth="required"))
    assert "Connection refused | start postgresql+psycopg://u" in told["database"][0][1]
    assert "secret" not in str(told) and "access" not in told
    targets: dict[str, Any] = {}
    with answering(lambda asked: Said(document=targets if "targets" in asked.path else READY)) as url:
        targets |= scraping(url, "down")
        targets["data"]["activeTargets"][0]["lastError"] = "server returned HTTP status 401 Unauthorized"
        [(level, said)] = found(place(url, sqlite_url, url))["prometheus"]
    assert level == "fail" and "401 Unauthorized | give it a token of scope read" in said


def test_clocks_that_differ_are_told_by_how_much() -> None:
    assert [_apart("x", seconds).level for seconds in (0.0, -4.9, 5.1, -59.0, 61.0)] == [
        "ok", "ok", "warn", "warn", "fail",
    ]  # fmt: skip
    assert _apart("the service", -300.0).said == "the clock of the service is 300 s behind this machine's"


def test_the_clock_of_the_database_is_read(database_url: str) -> None:
    assert abs(ahead(database_url)) < 5


def test_a_device_that_is_not_there_is_told(sqlite_url: str) -> None:
    import torch

    if torch.cuda.is_available():
        return
    for device in ("cuda", "cuda:7", "banana"):
        [(level, said)] = found(place("http://127.0.0.1:9", sqlite_url, device=device))["device"]
        assert level == "fail" and "finds no such device" in said and "set OFFPOLICY_DEVICE=auto" in said
        assert ("install a driver" in said) == device.startswith("cuda")


@pytest.mark.parametrize("nonsense", ["foo", "ftp://127.0.0.1", "http://", "http://[", "http://127.0.0.1:99999"])
def test_an_address_that_is_none_is_told(sqlite_url: str, nonsense: str) -> None:
    told = found(place(nonsense, sqlite_url, nonsense))
    assert levels(told)["service"] == ["warn"] and levels(told)["prometheus"] == ["fail"]
    assert all("must be an http or https URL" in told[name][0][1] for name in ("service", "prometheus"))


def test_what_answers_no_http_and_who_asks_for_a_login_are_told(sqlite_url: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]

        def greet() -> None:
            with other.accept()[0] as connection:
                connection.sendall(b"SSH-2.0-x\r\n")
                connection.recv(1 << 16)

        threading.Thread(target=greet, daemon=True).start()
        [(level, said)] = found(place("http://127.0.0.1:9", sqlite_url, port=port))["port"]
        assert level == "fail" and f"another program has port {port}" in said
    with answering(lambda asked: Said(401)) as url:
        told = found(place("http://127.0.0.1:9", sqlite_url, url, alertmanager_urls=(url,)))
    assert "OFFPOLICY_ALERTMANAGER_AUTHORIZATION" in told["alertmanager"][0][1]
    assert "USER:PASSWORD@HOST" in told["prometheus"][0][1]
