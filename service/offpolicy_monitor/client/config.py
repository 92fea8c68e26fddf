"""Config: what a monitor was given, completed from the environment and checked.

Plain values, picklable. Knows the names of environment variables, and nothing of what is done with them.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from offpolicy_monitor.addresses import LOCAL
from offpolicy_monitor.client.connection import bearer, parse
from offpolicy_monitor.errors import ConfigurationError
from offpolicy_monitor.vocabulary import RUN_NAME

URL, RUN, TOKEN = "OFFPOLICY_URL", "OFFPOLICY_RUN", "OFFPOLICY_TOKEN"


@dataclass(frozen=True)
class Config:
    """The arguments of Monitor, in its order."""

    url: str
    run: str
    profile: str | None
    labels: Mapping[str, object] | None
    attempt: int | None
    queue_bytes: int
    timeout: float
    token: str | None = field(repr=False)
    strict: bool
    reduce: bool

    @property
    def settings(self) -> dict[str, object]:
        """What PATCH of the run sets."""
        labels = None if self.labels is None else {str(name): str(value) for name, value in self.labels.items()}
        return {name: value for name, value in (("profile", self.profile), ("labels", labels)) if value is not None}


def settled(config: Config, environment: Mapping[str, str]) -> Config:
    """Complete a configuration from the environment. ConfigurationError says what to set where it is wrong."""
    config = replace(
        config,
        url=config.url or environment.get(URL, ""),
        run=config.run or environment.get(RUN, ""),
        token=config.token or environment.get(TOKEN) or None,
    )
    if not config.url:
        raise ConfigurationError(f"no address: give Monitor a url or set {URL}, such as {LOCAL}")
    parse(config.url)
    if config.token:
        bearer(config.token)
    if not re.fullmatch(RUN_NAME, config.run):
        what = f"{config.run!r} is no name of a run" if config.run else f"no run: give Monitor a run or set {RUN}"
        raise ConfigurationError(f"{what}; it begins with a letter or digit and has at most 128 of A-Z a-z 0-9 . _ -")
    if config.queue_bytes <= 0 or config.timeout <= 0:
        raise ConfigurationError("queue_bytes and timeout must be greater than 0")
    if config.attempt is not None and config.attempt < 0:
        raise ConfigurationError("attempt must not be negative")
    return config
