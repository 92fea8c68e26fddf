"""Write the shipped Grafana dashboards and Prometheus rules to a folder, with the user's address of the service.

The files lie ready in `dashboards/`; only the address in their links is put in place of the default one. Needs no
library, so that the machine that runs Prometheus needs the base install alone.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from offpolicy_monitor import resources
from offpolicy_monitor.addresses import LOCAL, parts_of
from offpolicy_monitor.errors import ConfigurationError

DEFAULT_SERVICE_URL: Final = LOCAL
"""The address that the shipped files link to."""

KINDS: Final[Mapping[str, str]] = {"grafana": "grafana/*.json", "prometheus": "prometheus/*.rules.yaml"}
"""What can be written, and which files under `dashboards/` it is."""

# What would end a string of JSON or a scalar of YAML, or start a variable of Grafana or a template of Prometheus.
FORBIDDEN: Final = frozenset("\"'\\`${}<>#|^ ")


def export(kind: str, folder: Path, service_url: str = DEFAULT_SERVICE_URL) -> list[Path]:
    """Write the files of a kind (KINDS) and answer their paths; the folder is made, files of those names replaced."""
    url = checked_url(service_url)
    found = sorted(resources.path("dashboards").glob(KINDS[kind]))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return [_write(path, folder / path.name, url) for path in found]
    except OSError as error:
        raise ConfigurationError(f"{error.filename or folder} cannot be written: {error.strerror}") from error


def checked_url(text: str) -> str:
    """The URL without a slash at its end; ValueError where links could not begin with it."""
    if parts_of(text).query or any(sign in FORBIDDEN or not sign.isprintable() for sign in text):
        raise ValueError(f"{text!r} has signs that the beginning of a link cannot have")
    return text.rstrip("/")


def _write(source: Path, target: Path, url: str) -> Path:
    text = source.read_text(encoding="utf-8").replace(DEFAULT_SERVICE_URL, url)
    target.write_text(text, encoding="utf-8")
    return target
