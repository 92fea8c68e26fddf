"""Proxies: which one leads to the service, by the environment's http_proxy, https_proxy and no_proxy.

None leads to loopback, whatever the environment says: a proxy for the outside has no business with this machine.
"""

from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from offpolicy_monitor.addresses import is_loopback


@dataclass(frozen=True)
class Proxy:
    """Where a proxy listens, and the header that it wants to see."""

    host: str
    port: int
    headers: dict[str, str]


def proxy_for(scheme: str, host: str) -> Proxy | None:
    """The proxy for a service at `host`, None where it is reached directly."""
    import urllib.request  # slow to import, and needed once, in the background

    address = (
        None if is_loopback(host) or urllib.request.proxy_bypass(host) else urllib.request.getproxies().get(scheme)
    )
    if not address:
        return None
    parts = urlsplit(address if "//" in address else f"//{address}")
    headers = {}
    if parts.username is not None:
        import base64

        secret = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
        headers["Proxy-Authorization"] = f"Basic {base64.b64encode(secret).decode()}"
    return Proxy(parts.hostname or "", parts.port or 80, headers)
