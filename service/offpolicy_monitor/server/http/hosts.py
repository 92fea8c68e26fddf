"""TrustedHosts: requests are answered under the names of this service alone; 421 under any other.

A page whose name resolves to this machine (DNS rebinding) is of one origin with the service to a browser, and could
read and delete runs; but it cannot call itself by the service's name. Pure ASGI; knows the Host header, no routes.
"""

from collections.abc import Collection
from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

from offpolicy_monitor.addresses import is_loopback
from offpolicy_monitor.errors import Refusal, quotable
from offpolicy_monitor.server.http.problems import refusal_of
from offpolicy_monitor.settings import Settings

ANY = "*"
#: Host headers of which it is remembered whether they are trusted: clients send the same ones all the time.
REMEMBERED: Final = 256


class TrustedHosts:
    """Wraps the application; without a check (`trusted` is None) every request passes."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._trusted = trusted(settings)
        self._setting = settings.variable("trusted_hosts")
        self._is_trusted = lru_cache(REMEMBERED)(lambda host: is_trusted(host_name(host), self._trusted or ()))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._refusal(scope) if scope["type"] == "http" and self._trusted is not None else None
        if refusal is None:
            await self._app(scope, receive, send)
            return
        await refusal_of(scope, refusal)(scope, receive, send)

    def _refusal(self, scope: Scope) -> Refusal | None:
        """400 where there is not one host, 421 where it is another's; HTTP/1.0 needs none, and no browser speaks it."""
        sent = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        if not sent and scope["http_version"] == "1.0":
            return None
        if len(sent) != 1:
            return Refusal.of_field(400, "invalid-host", "Host", f"must be sent once; it was sent {len(sent)} times")
        if self._is_trusted(sent[0]):
            return None
        message = f"{quotable(sent[0])!r} is no name of this service; {self._setting} adds one"
        return Refusal.of_field(421, "untrusted-host", "Host", message)


def trusted(settings: Settings) -> Collection[str] | None:
    """Names beside those of loopback; None where any is taken: on an address that others reach, unless it is told."""
    if ANY in settings.trusted_hosts or not (settings.trusted_hosts or is_loopback(settings.host)):
        return None
    return (*settings.trusted_hosts, host_name(urlsplit(settings.public_url).netloc) or "")


def is_trusted(name: str | None, names: Collection[str]) -> bool:
    """Whether a host is loopback's or in `names`, where `*.example.org` stands for every name below it."""
    if name is None:
        return False
    return is_loopback(name) or any(
        name.endswith(known[1:]) and name != known[1:] if known.startswith("*.") else name == known for known in names
    )


def host_name(host: str) -> str | None:
    """The name or address in a Host header: lower case, no port, no brackets, no dot at its end; None if malformed."""
    try:
        parts = urlsplit(f"//{host.strip()}")
        parts.port  # noqa: B018  # raises where it is not a number
    except ValueError:
        return None
    if parts.netloc != host.strip() or parts.username is not None or not parts.hostname:
        return None
    return parts.hostname.removesuffix(".")
