"""When a certificate ends is read from its file, and shown by the service, the doctor and, by openssl, the same."""

import ssl
import subprocess
import time
import urllib.request
from datetime import datetime
from pathlib import Path

import pytest
from offpolicy_monitor.cli.installation import Place, look
from offpolicy_monitor.server.http.validity import ends_at
from offpolicy_monitor.settings import Settings

from tests.fixtures.prometheus import wait_for
from tests.fixtures.tls import SecureService, make_certificate, serving_tls
from tests.fixtures.tools import require_tool

DAY = 86_400


def made(folder: Path, name: str, days: int) -> Path:
    """A certificate that is good for so many days."""
    file = folder / f"{name}.pem"
    command = [
        str(require_tool("openssl")),
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
    ]
    files = ["-nodes", "-days", str(days), "-subj", f"/CN={name}", "-keyout", str(folder / "key"), "-out", str(file)]
    subprocess.run([*command, *files], check=True, capture_output=True)
    return file


def by_openssl(file: Path) -> float:
    """The same by openssl."""
    command = [str(require_tool("openssl")), "x509", "-enddate", "-noout", "-dateopt", "iso_8601", "-in", str(file)]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip().partition("=")[2]
    return datetime.fromisoformat(said).timestamp()


@pytest.mark.parametrize("days", [1, 365, 40_000], ids=["a day", "a year", "past 2049, in another form"])
def test_the_end_of_a_certificate_is_what_openssl_says(tmp_path: Path, days: int) -> None:
    file = made(tmp_path, "one", days)
    assert ends_at(file.read_text()) == by_openssl(file)
    assert abs(ends_at(file.read_text()) - time.time() - days * DAY) < 60


def test_of_a_chain_the_first_one_that_ends_counts(tmp_path: Path) -> None:
    long, short = made(tmp_path, "long", 100), made(tmp_path, "short", 3)
    assert ends_at(long.read_text() + "\n" + short.read_text()) == by_openssl(short)


def test_bytes_without_a_certificate_are_told_as_such(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no certificate"):
        ends_at("-----BEGIN PRIVATE KEY-----")


def shown_end(service: SecureService) -> float:
    anything = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anything.check_hostname, anything.verify_mode = False, ssl.CERT_NONE
    with urllib.request.urlopen(f"{service.url}/metrics", context=anything, timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    (line,) = [line for line in lines if line.startswith("offpolicy_certificate_expiry_timestamp_seconds{")]
    assert 'file="service.pem"' in line
    return float(line.rpartition(" ")[2])


def test_the_service_shows_the_end_of_what_it_shows_also_after_a_renewal(tmp_path: Path) -> None:
    certificate = make_certificate(tmp_path)
    with serving_tls(tmp_path, certificate, {}) as service:
        assert shown_end(service) == by_openssl(certificate.file)
        command = [str(require_tool("openssl")), "req", "-x509", "-key", str(certificate.key), "-days", "90"]
        names = ["-subj", "/CN=service", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
        subprocess.run([*command, *names, "-out", str(tmp_path / "new")], check=True, capture_output=True)
        (tmp_path / "new").rename(certificate.file)
        renewed = by_openssl(certificate.file)
        wait_for(lambda: shown_end(service) == renewed, 40)


@pytest.mark.parametrize(("days", "level"), [(30, "ok"), (10, "warn"), (1, "fail")])
def test_the_doctor_tells_how_long_it_is_good_for(tmp_path: Path, days: int, level: str) -> None:
    file = made(tmp_path, "chain", days)
    url = f"sqlite:///{tmp_path / 'none.db'}"
    settings = Settings(ssl_certfile=file, ssl_keyfile=tmp_path / "key", database_url=url, port=0)
    found = dict(look(Place(settings, "http://127.0.0.1:1", None, 0.1)))
    finding = found["certificate"]
    assert finding.level == level
    assert "the certificate chain.pem ends in" in finding.said
    assert ("CertificateEnds" in finding.change) == (level != "ok")
