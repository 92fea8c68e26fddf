"""What is wrong with the installation: checks as rows, each of which says what it found and what to do.

Looks at what a service would use (settings, database, disk, device, clock, port) and asks what runs (the service,
Prometheus, Alertmanagers). Changes nothing: a database that is not there is not made.
"""

import base64
import errno
import json
import os
import re
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import unquote, urlsplit

from offpolicy_monitor._version import __version__
from offpolicy_monitor.addresses import is_loopback, parts_of
from offpolicy_monitor.cli.command import needed
from offpolicy_monitor.cli.environment import without_password
from offpolicy_monitor.errors import ConfigurationError, OffpolicyMonitorError, Unavailable, quotable

if TYPE_CHECKING:
    from offpolicy_monitor.settings import Settings

Level = Literal["ok", "warn", "fail"]
#: Bytes of free disk below which it is worth a warning, and below which it fails.
LOW, FULL = 2e9, 2e8
#: Days that a certificate is still good for below which it is worth a warning, and below which it fails.
ENDS_SOON, ENDS = 14, 2
#: Bytes of an answer that are read: Prometheus's is long where it has many targets.
MOST: Final = 16 << 20
#: Seconds of difference between clocks: notes of alerts are off by more, then runs look silent or overdue.
APART, FAR_APART = 5.0, 60.0


@dataclass(frozen=True)
class Finding:
    """What a check found; `change` is what to do, empty where there is nothing."""

    level: Level
    said: str
    change: str = ""


@dataclass(frozen=True)
class Place:
    """What is looked at: `settings` of the service, its address, and that of Prometheus, None for none."""

    settings: "Settings"
    url: str
    prometheus: str | None
    timeout: float
    token: str | None = field(default=None, repr=False)

    @property
    def bearer(self) -> str | None:
        """What the service is asked with; ConfigurationError where the token is none."""
        return str(needed("client.connection").bearer(self.token)) if self.token else None

    @property
    def known(self) -> str | None:
        """The same for what is answered without a token too."""
        with suppress(ConfigurationError):
            return self.bearer
        return None


@dataclass(frozen=True)
class Check:
    """One question about a place."""

    name: str
    look: Callable[[Place], Iterator[Finding]]


def look(place: Place) -> list[tuple[str, Finding]]:
    """Every finding with the name of its check; a check that cannot be made is a finding too."""
    found = []
    for check in CHECKS:
        try:
            found += [(check.name, finding) for finding in check.look(place)]
        except Unavailable as error:
            found.append((check.name, Finding("fail", str(error), _to_reach(place.settings.database_url))))
        except OffpolicyMonitorError as error:
            found.append((check.name, Finding("fail", str(error))))
    return found


def _to_reach(database: str) -> str:
    """What to do where a database does not answer; a SQLite file's error says it."""
    shown = without_password(database)
    return f"start {shown}, or name another (OFFPOLICY_DATABASE_URL)" if shown.startswith("postgresql") else ""


def _database(place: Place) -> Iterator[Finding]:
    url, migrate, session = place.settings.database_url, needed("store.migrate"), needed("store.session")
    file, shown = session.sqlite_file(session.parse_url(url)), without_password(url)
    if file is not None and (shut := _shut(file)) is not None:
        yield Finding(
            "fail", f"{shut} cannot be written by this user", "be the user of the service, or give it to them"
        )
        return
    if file is not None and not file.exists():
        yield Finding("warn", f"there is no database at {file} yet", "nothing, if it is new: serve makes it")
        return
    if file is not None and not file.stat().st_size:
        yield Finding(
            "fail", f"{file} is empty, and no database is", "restore a backup after removing it (docs/backup.md)"
        )
        return
    migrate.refuse_damaged(url)
    advice = migrate.outdated(url)
    yield Finding("fail", advice) if advice else Finding("ok", f"{shown} is at revision {migrate.head()}")


def _shut(file: Path) -> Path | None:
    """The file, or the nearest folder of it that is there, where this user may not write; None where they may."""
    there = [path for path in (file, *file.absolute().parents) if os.path.exists(path)]  # Path's own raises
    needed_for_writing = [there[0], next(path for path in there if path.is_dir())]
    can_write = os.access in os.supports_effective_ids
    return next((p for p in needed_for_writing if not os.access(p, os.W_OK, effective_ids=can_write)), None)


def _disk(place: Place) -> Iterator[Finding]:
    room = needed("store.space").room(place.settings.database_url)
    if room is not None:
        free = room()
        level: Level = "fail" if free < FULL else "warn" if free < LOW else "ok"
        change = "" if level == "ok" else "make room, or move the database: docs/runbook.md#StorageFull"
        yield Finding(level, f"{free / 1e9:,.1f} GB are free on the database's disk", change)


def _device(place: Place) -> Iterator[Finding]:
    wanted = place.settings.device
    version, device = needed("measure.present").present(wanted)
    if device is None:
        change = "set OFFPOLICY_DEVICE=auto"
        if wanted.startswith("cuda"):
            change = f"install a driver and a CUDA build of torch, or {change}"
        yield Finding("fail", f"OFFPOLICY_DEVICE is {wanted}, and torch {version} finds no such device", change)
        return
    yield Finding("ok", f"torch {version} computes on {device}")
    library = needed("measure.library")
    if not place.settings.torch_compile:
        yield Finding(
            "warn", "the compiled pass is off, torch takes ten times as long", "set OFFPOLICY_TORCH_COMPILE=true"
        )
    elif library.find_pass(library.folder()) is None:
        said = f"the compiled pass is not in {library.folder()} yet"
        yield Finding("warn", said, "there is nothing to do: the service makes it in about a minute, and keeps it")
    else:
        yield Finding("ok", f"the compiled pass is in {library.folder()}")


def _clock(place: Place) -> Iterator[Finding]:
    session = needed("store.session")
    file = session.sqlite_file(session.parse_url(place.settings.database_url))
    if file is None or file.parent.exists():
        yield _apart("the database's disk" if file else "the database's server", needed("store.clock").ahead(
            place.settings.database_url))  # fmt: skip
    said = _ask(f"{place.url}/healthz", place.timeout, place.known)
    if said.date is not None:
        # The header has whole seconds, of some moment between question and answer.
        yield _apart("the service", said.date + 0.5 - time.time())


def _apart(what: str, seconds: float) -> Finding:
    level: Level = "fail" if abs(seconds) > FAR_APART else "warn" if abs(seconds) > APART else "ok"
    if level == "ok":
        return Finding(level, f"the clock of {what} agrees with this machine's")
    way = "ahead of" if seconds > 0 else "behind"
    return Finding(level, f"the clock of {what} is {abs(seconds):.0f} s {way} this machine's", "let NTP set both")


def _port(place: Place) -> Iterator[Finding]:
    host, port = place.settings.host, place.settings.port
    try:
        needed("server.process").bound(host, port).close()
    except OffpolicyMonitorError as error:
        cause = error.__cause__
        if not isinstance(cause, OSError) or cause.errno != errno.EADDRINUSE:
            yield Finding("fail", str(error))
            return
        said = _ask(f"{_own(place.settings)}/healthz", place.timeout, is_own=True)
        if "version" in said.document:
            yield Finding("ok", f"a service of version {said.document['version']} has port {port} of {host}")
        else:
            yield Finding("fail", f"another program has port {port} of {host}",
                          f"end it (ss -ltnp 'sport = :{port}' names it), or set OFFPOLICY_PORT")  # fmt: skip
    else:
        yield Finding("ok", f"port {port} of {host} is free")


def _own(settings: "Settings") -> str:
    """Where this machine reaches what listens at the address that the settings name."""
    scheme = "https" if settings.ssl_certfile else "http"
    host = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{settings.port}"


def _service(place: Place) -> Iterator[Finding]:
    said = _ask(f"{place.url}/readyz", place.timeout, place.known)
    if not said.status:
        change = "start it (serve), or name it by --url"
        if "certificate verify failed" in said.error:
            change = "name its authority's certificates in SSL_CERT_FILE, or the name they are for by --url"
        yield Finding("warn", f"no service answers at {place.url}: {said.error}", change)
    elif "checks" not in said.document:
        said_no = f"what answers at {place.url} is no service of offpolicy-monitor"
        yield Finding("fail", ": ".join(filter(None, (said_no, said.error))), "name it by --url")
    elif said.status != 200:
        reasons = said.document.get("reasons", {})
        yield from (Finding("fail", f"{place.url} is not ready: {name}", str(why)) for name, why in reasons.items())
    else:
        yield Finding("ok", f"{place.url} is ready, measured by {said.document['measured_by']}")
        version = _ask(f"{place.url}/healthz", place.timeout, place.known).document.get("version")
        if version != __version__:
            yield Finding("warn", f"it has version {version}, this command {__version__}", "install the same on both")


def _access(place: Place) -> Iterator[Finding]:
    if place.settings.auth == "required" and _has_no_valid_token(place.settings.database_url):
        yield Finding("warn", "OFFPOLICY_AUTH is required, and there is no valid access token: nobody is let in",
                      "offpolicy-monitor token create: docs/access.md")  # fmt: skip
    said = _ask(f"{place.url}/v1/runs?limit=1", place.timeout, place.bearer)
    kind, where = str(said.document.get("type", "")).rpartition(":")[2], _shown(place.url)
    if said.status == 401 and place.token:
        yield Finding("fail", f"{where} refuses OFFPOLICY_TOKEN: {said.document.get('detail', kind)}",
                      "set one that `offpolicy-monitor token list` has as valid")  # fmt: skip
    elif said.status == 401:
        yield Finding("ok", f"{where} lets in nobody without an access token, and OFFPOLICY_TOKEN is not set")
    elif kind == "scope-missing":
        yield Finding("ok", f"{where} takes OFFPOLICY_TOKEN, for posting alone")
    elif said.status == 200 and "runs" in said.document and place.token:
        yield Finding("ok", f"{where} answers with OFFPOLICY_TOKEN")
    elif said.status == 200 and "runs" in said.document:
        is_near = is_loopback(urlsplit(place.url).hostname or "")
        yield Finding("ok" if is_near else "warn", f"{where} asks for no access token",
                      "" if is_near else "make one, whoever reaches it can delete runs: docs/access.md")  # fmt: skip


def _has_no_valid_token(url: str) -> bool:
    """False also where there is no database that says it, which is told by its own check."""
    session, now = needed("store.session"), time.time()
    with suppress(OffpolicyMonitorError):
        file = session.sqlite_file(session.parse_url(url))
        if file is None or file.exists():
            return all(token.state(now) != "valid" for token in needed("store.access").read_all(url))
    return False


def _prometheus(place: Place) -> Iterator[Finding]:
    if place.prometheus is None:
        return
    there = _shown(place.prometheus)
    said = _ask(f"{place.prometheus.rstrip('/')}/api/v1/targets?state=active", place.timeout)
    targets = (said.document.get("data") or {}).get("activeTargets")
    if targets is None:
        change = "name it by --prometheus"
        if said.status in (401, 403):
            change = "name who asks, --prometheus http://USER:PASSWORD@HOST"
        yield Finding("fail", f"{there} does not say what it scrapes: {said.told}", change)
        return
    here = urlsplit(place.url)
    ours = [one for one in targets if _is_ours(one, here.netloc)]
    if not ours:
        yield Finding("fail", f"of {len(targets)} targets of {there} none is {here.netloc}",
                      "add it to scrape_configs: dashboards/prometheus/prometheus.yaml")  # fmt: skip
    for one in ours:
        up = one.get("health") == "up"
        seen = f"{there} scrapes {one.get('scrapeUrl')}"
        why = str(one.get("lastError") or one.get("health"))
        refused = any(f"HTTP status {status}" in why for status in (401, 403))
        change = "give it a token of scope read for all runs: docs/access.md"
        if not refused:
            change = "open that address from Prometheus's machine"
        yield Finding("ok", seen) if up else Finding("fail", f"{seen}: {why}", change)


def _is_ours(target: dict[str, Any], netloc: str) -> bool:
    job = str((target.get("labels") or {}).get("job", ""))
    return urlsplit(str(target.get("scrapeUrl", ""))).netloc == netloc or job.startswith("offpolicy")


def _alertmanagers(place: Place) -> Iterator[Finding]:
    secret = place.settings.alertmanager_authorization
    known = None if secret is None else secret.get_secret_value()
    for url in place.settings.alertmanager_urls:
        said = _ask(f"{url.rstrip('/')}/api/v2/status", place.timeout, known)
        if said.status == 200 and "versionInfo" in said.document:
            yield Finding("ok", f"the Alertmanager at {url} answers")
        else:
            change = "start it, or name another in OFFPOLICY_ALERTMANAGER_URLS"
            if said.status in (401, 403):
                change = "set OFFPOLICY_ALERTMANAGER_AUTHORIZATION to one that it takes"
            yield Finding("fail", f"no Alertmanager answers at {url}: {said.told}", change)


@dataclass(frozen=True)
class Said:
    """An answer, or why there is none (status 0)."""

    status: int
    document: dict[str, Any]
    date: float | None = None
    error: str = ""

    @property
    def told(self) -> str:
        """What to show where it is not what was asked for."""
        return self.error or f"it answers {self.status}"


def _ask(url: str, timeout: float, authorization: str | None = None, is_own: bool = False) -> Said:
    """GET, with the user and password of the address if it has them; anything but a JSON object is an empty one.

    A redirect is not followed: what was meant for one address would be sent to another. `is_own`: of whatever has the
    port of this machine no certificate is asked for, since it is told nothing.
    """
    try:
        parts = parts_of(url)
    except ValueError as error:
        return Said(0, {}, error=f"it {error}")
    request = urllib.request.Request(_shown(url))
    if authorization is not None:
        request.add_header("Authorization", authorization)
    elif parts.username is not None:
        known = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        request.add_header("Authorization", f"Basic {base64.b64encode(known.encode()).decode()}")
    try:
        with _opened(request, timeout, is_own) as answer:
            text, date, leads = answer.read(MOST), answer.headers.get("Date"), answer.headers.get("Location")
            when = parsedate_to_datetime(date).timestamp() if date else None
            return Said(answer.status, _object(text), when, f"it leads to {quotable(leads)}" if leads else "")
    except (OSError, ValueError, HTTPException) as error:
        return Said(0, {}, error=str(getattr(error, "reason", error)) or type(error).__name__)


def _shown(url: str) -> str:
    """The address without user and password."""
    return re.sub("//[^/?#]*@", "//", url)


def _opened(request: urllib.request.Request, timeout: float, is_own: bool) -> Any:
    handlers: list[Any] = [needed("notify.http").NoRedirects]
    if is_own:
        # Reads none of the machine's authorities, which takes 50 ms: what is shown is not compared with them.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        handlers.append(urllib.request.HTTPSHandler(context=context))
    try:
        return urllib.request.build_opener(*handlers).open(request, timeout=timeout)
    except urllib.error.HTTPError as error:
        return error  # an answer as good as any


def _object(text: bytes) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _certificate(place: Place) -> Iterator[Finding]:
    shown = needed("server.http.tls").certificate(place.settings)
    if shown is not None:
        days = (shown.ends_at - time.time()) / 86_400
        level: Level = "fail" if days < ENDS else "warn" if days < ENDS_SOON else "ok"
        change = "" if level == "ok" else "renew it in place: docs/runbook.md#CertificateEnds"
        said = f"ends in {days:,.1f} days" if days > 0 else f"ended {-days:,.1f} days ago"
        yield Finding(level, f"the certificate {shown.name} {said}", change)


CHECKS: Final = (
    Check("database", _database),
    Check("certificate", _certificate),
    Check("disk", _disk),
    Check("device", _device),
    Check("clock", _clock),
    Check("port", _port),
    Check("service", _service),
    Check("access", _access),
    Check("prometheus", _prometheus),
    Check("alertmanager", _alertmanagers),
)
