"""What is chosen of a deployment under Ray, checked; and the variables that Ray's own processes need. Needs no Ray."""

import os
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from offpolicy_monitor.errors import ConfigurationError
from offpolicy_monitor.settings import Settings

#: Seconds for which a replica that is to end still answers what the proxy sends it, until the proxy knows.
DEREGISTERED_WITHIN: Final = 3
#: Read by Ray's processes when they start; what is set already stays.
VARIABLES: Final[Mapping[str, str]] = {
    # HAProxy hands bodies on as they come, with four times the throughput of Ray's proxy in Python.
    "RAY_SERVE_ENABLE_HA_PROXY": "1",
    # Both together keep Ray from reading bodies ahead of the service, whose budgets then hold (`bodies`).
    "RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD": "0",
    "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH": "offpolicy_monitor.rayserve.bodies:middlewares",
    "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": str(DEREGISTERED_WITHIN),
    # The control plane runs whatever it is sent: only who has the token may.
    "RAY_AUTH_MODE": "token",
    "RAY_USAGE_STATS_ENABLED": "0",
}
#: Files of HAProxy, which Ray would put where every user of the machine may make them first.
FILES: Final[Mapping[str, str]] = {
    "RAY_SERVE_HAPROXY_CONFIG_FILE_LOC": "haproxy.cfg",
    "RAY_SERVE_HAPROXY_SOCKET_PATH": "admin.sock",
    "RAY_SERVE_HAPROXY_SERVER_STATE_BASE": "",
    "RAY_SERVE_HAPROXY_SERVER_STATE_FILE": "server-state",
    "RAY_SERVE_HAPROXY_METRICS_SOCKET_PATH": "metrics.sock",
}


class Options(BaseModel):
    """Of the replicas. The fields are the flags of `offpolicy-monitor ray up`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    replicas: int = Field(2, ge=1, description="replicas to begin with, and the fewest")
    max_replicas: int | None = Field(
        None, ge=1, description="most replicas, where those that are there have much to do"
    )
    target_ongoing_requests: float = Field(
        4.0, gt=0, description="requests under way in each, event streams too, above which replicas are added"
    )
    max_ongoing_requests: int = Field(
        128, ge=1, description="most requests under way in each, event streams too; others wait unread"
    )
    max_queued_requests: int = Field(128, ge=0, description="most that wait for each; further ones are answered 429")
    retry_after: float = Field(1.0, ge=0, description="seconds after which what was answered 429 is to come again")
    num_cpus: float = Field(1.0, ge=0, description="processors of each, in Ray's count")
    num_gpus: float = Field(0.0, ge=0, description="GPUs of each: 0.25 puts four on one")

    @model_validator(mode="after")
    def _in_order(self) -> "Options":
        if self.max_replicas is not None and self.max_replicas < self.replicas:
            raise ValueError(f"max_replicas ({self.max_replicas}) is less than replicas ({self.replicas})")
        return self

    @property
    def most(self) -> int:
        """The most replicas."""
        return self.max_replicas or self.replicas

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> "Options":
        """Those given, and defaults; ConfigurationError names each that is wrong."""
        try:
            return cls(**{name: value for name, value in given.items() if value is not None})
        except ValidationError as error:
            lines = [f"{'.'.join(map(str, e['loc'])) or 'options'}: {e['msg']}" for e in error.errors()]
            raise ConfigurationError("\n".join(lines)) from error


def refuse_alone(settings: Settings) -> None:
    """ConfigurationError where the database takes one process only: the replicas and the exporter are several."""
    if settings.database_url.startswith("sqlite"):
        raise ConfigurationError(
            "a SQLite file takes one process that writes, and under Ray there are several: use PostgreSQL "
            f"({settings.variable('database_url')}=postgresql://...), or `offpolicy-monitor serve`"
        )


def prepare(environment: MutableMapping[str, str], folder: Path, linux: bool) -> None:
    """Set what is not set: to be called before Ray is imported. HAProxy comes with Ray on Linux alone."""
    if not linux:
        environment.setdefault("RAY_SERVE_ENABLE_HA_PROXY", "0")
    for name, value in VARIABLES.items():
        environment.setdefault(name, value)
    if environment["RAY_SERVE_ENABLE_HA_PROXY"] != "1":  # its proxy in Python hands bodies over another way
        del environment["RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD"]
        del environment["RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH"]
    for name, file in FILES.items():
        environment.setdefault(name, os.path.join(folder, file))
