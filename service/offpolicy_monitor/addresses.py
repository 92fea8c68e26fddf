"""Addresses: what an http or https URL must be to lead to a service, and whether a host is this machine.

For everybody who is given an address: trainers, settings, the command line. Knows nothing of what is sent there.
"""

import re
from typing import Final
from urllib.parse import SplitResult, urlsplit

SCHEMES: Final = ("http", "https")
#: Where a service listens that was told nothing else.
LOCAL: Final = "http://127.0.0.1:8900"


def parts_of(url: str) -> SplitResult:
    """The parts of an http or https URL with a host and no port 0; ValueError for what is none.

    The message does not repeat the URL: addresses of webhooks are often secrets themselves.
    """
    try:
        parts = urlsplit(url)
        valid = parts.scheme in SCHEMES and bool(parts.hostname) and parts.port != 0 and not re.search(r"\s", url)
    except ValueError:
        valid = False
    if not valid:
        raise ValueError(f"must be an http or https URL with a host, as in {LOCAL}")
    return parts


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a host; a name counts only if it is localhost."""
    import ipaddress  # a trainer imports this module, and asks only when it posts

    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower().rstrip(".") == "localhost"
