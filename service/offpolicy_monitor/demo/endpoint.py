"""Endpoint: one keep-alive connection from the demo trainer to the service.

It knows HTTP and addresses, and nothing of what is sent. A failure raises; whoever calls decides what it means.
"""

import json
from collections.abc import Mapping, Sequence
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from urllib.parse import urlsplit

from offpolicy_monitor.errors import ConfigurationError

CONNECTIONS = {"http": HTTPConnection, "https": HTTPSConnection}
JSON_MEDIA_TYPE = "application/json"
QUOTED_BYTES = 200


class StatusError(HTTPException):
    """The service answered, and not with 2xx. `status` is what it answered."""

    def __init__(self, status: int, reason: str, text: bytes) -> None:
        super().__init__(f"{status} {reason}: {text[:QUOTED_BYTES].decode(errors='replace')}")
        self.status = status


class Endpoint:
    """A service at `url`, connected when first used. Raises ConfigurationError for what is no address."""

    def __init__(self, url: str, timeout: float = 10.0) -> None:
        parts = urlsplit(url)
        try:
            port = parts.port
        except ValueError as error:
            raise ConfigurationError(f"{url!r} is no address: {error}") from error
        if parts.scheme not in CONNECTIONS or not parts.hostname:
            raise ConfigurationError(f"{url!r} is no address: it must look like http://127.0.0.1:8900")
        self.url = url.rstrip("/")
        self.prefix = parts.path.rstrip("/")
        self.connection = CONNECTIONS[parts.scheme](parts.hostname, port, timeout=timeout)

    def request(
        self, method: str, path: str, body: Sequence[bytes | memoryview] = (), media_type: str = JSON_MEDIA_TYPE
    ) -> Mapping[str, object]:
        """Send, and give the decoded JSON object, empty where the answer is none.

        Sent once more where the connection broke, as kept ones do: every request of the demo may be repeated. Raises
        StatusError unless the answer is 2xx, ValueError where it is no JSON, HTTPException or OSError where the
        connection failed.
        """
        try:
            text = self._exchange(method, path, body, media_type)
        except ConnectionError:
            text = self._exchange(method, path, body, media_type)
        answer = json.loads(text) if text else {}
        return answer if isinstance(answer, dict) else {}

    def _exchange(self, method: str, path: str, body: Sequence[bytes | memoryview], media_type: str) -> bytes:
        headers = {"Content-Type": media_type, "Content-Length": str(sum(memoryview(part).nbytes for part in body))}
        try:
            self.connection.request(method, self.prefix + path, iter(body), headers if body else {})
            response = self.connection.getresponse()
            text: bytes = response.read()
        except (OSError, HTTPException):
            self.connection.close()
            raise
        if not 200 <= response.status < 300:
            raise StatusError(response.status, response.reason, text)
        return text

    def check(self) -> None:
        """Raise ConfigurationError, saying what to do, unless a service answers here."""
        try:
            self.request("GET", "/healthz")
        except (OSError, HTTPException, ValueError) as error:
            reason = str(error) or type(error).__name__
            raise ConfigurationError(
                f"no offpolicy-monitor answers at {self.url} ({reason}). "
                "Start one with `offpolicy-monitor serve`, or name another with --url."
            ) from error

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        self.connection.close()
