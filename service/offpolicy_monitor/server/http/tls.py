"""Certificate: what the service shows who connects by https, read from files, and again whenever they change.

A certificate lives for weeks, a run may live longer: whoever renews the files restarts nothing. Knows files and
OpenSSL, no connections.
"""

import os
import ssl
from pathlib import Path
from typing import Final

import structlog

from offpolicy_monitor.errors import ConfigurationError
from offpolicy_monitor.server.http.validity import ends_at
from offpolicy_monitor.settings import Settings

log = structlog.get_logger("offpolicy_monitor.server")
#: How often the files are looked at, seconds.
LOOK_SECONDS: Final = 10
#: What OpenSSL calls a key of another certificate.
OTHERS: Final = ("KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH")


class Certificate:
    """The context of every connection; `ends_at`: when the first of its chain does, Unix time.

    Raises ConfigurationError for files that cannot be used, and says which.
    """

    def __init__(self, settings: Settings) -> None:
        if settings.ssl_certfile is None:
            given, missing = settings.variable("ssl_keyfile"), settings.variable("ssl_certfile")
            raise ConfigurationError(f"{given} is set without a certificate: set {missing} too")
        self._certificate = settings.ssl_certfile
        self._key = settings.ssl_keyfile or settings.ssl_certfile
        secret = settings.ssl_keyfile_password
        self._password = secret.get_secret_value() if secret is not None else ""
        self._settings = settings
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.set_alpn_protocols(["http/1.1"])
        self._read_at = self._changed()
        self._load(self.context)
        self.ends_at = self._ends_at()

    def renew(self) -> None:
        """Show new connections what the files hold now; while they cannot be used, what they held before."""
        changed = self._changed()
        if changed == self._read_at:
            return
        self._read_at = changed
        try:
            self._load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))  # one that fails half-way must not be in use
            self._load(self.context)
        except ConfigurationError as error:
            log.error("the certificate is not renewed: the one before stays in use", reason=str(error))
        else:
            self.ends_at = self._ends_at()
            log.info("the certificate is renewed", certificate=str(self._certificate))

    @property
    def name(self) -> str:
        """That of its file."""
        return self._certificate.name

    def _ends_at(self) -> float:
        return ends_at(self._certificate.read_text("latin-1"))

    def _load(self, context: ssl.SSLContext) -> None:
        for setting, path in (("ssl_certfile", self._certificate), ("ssl_keyfile", self._key)):
            try:
                path.read_bytes()
            except OSError as error:
                variable = self._settings.variable(setting)
                raise ConfigurationError(f"{variable}: cannot read {path}: {error.strerror}") from error
        asked: list[bool] = []

        def password() -> str:  # without one OpenSSL would ask whoever sits at the terminal
            asked.append(True)
            return self._password

        try:
            context.load_cert_chain(self._certificate, self._key, password)
        except (ssl.SSLError, ValueError) as error:
            reason = str(getattr(error, "reason", None) or error)
            raise ConfigurationError(self._refusal(reason, bool(asked))) from error

    def _refusal(self, reason: str, encrypted: bool) -> str:
        if reason in OTHERS:
            return f"the key {self._key} does not belong to the certificate {self._certificate}"
        if encrypted:
            variable = self._settings.variable("ssl_keyfile_password")
            return f"the key {self._key} is encrypted, and {variable} does not open it"
        return f"{self._certificate} and {self._key} hold no certificate with its key in PEM ({reason})"

    def _changed(self) -> tuple[int, ...]:
        """When the files were last written; 0 for one that is away."""
        return tuple(_written(path) for path in (self._certificate, self._key))


def certificate(settings: Settings) -> Certificate | None:
    """The certificate of the settings; None where the service speaks plain HTTP."""
    return Certificate(settings) if settings.ssl_certfile or settings.ssl_keyfile else None


def _written(path: Path) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0
