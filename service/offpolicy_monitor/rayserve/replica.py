"""Replica: the application in one process of Ray's, made there and not sent there.

What Ray asks of it: its application, whether it is in health, what it has counted.
"""

import sys
from typing import Final

import ray
from fastapi import FastAPI
from ray import serve

from offpolicy_monitor import logs
from offpolicy_monitor.exposition.formats import TEXT
from offpolicy_monitor.server.app import create_app
from offpolicy_monitor.server.memory import keep_large_blocks
from offpolicy_monitor.server.process import SWITCH_SECONDS
from offpolicy_monitor.server.services import Services
from offpolicy_monitor.settings import Settings

#: What a new process would mend. A database that is away is no such thing: requests are answered 503 meanwhile.
MENDED_ANEW: Final = ("stages",)


class Unhealthy(RuntimeError):
    """Ray is to put another in its place."""


@serve.ingress()
class Monitor:
    """The service, with the settings of its environment; `host` is what the proxy binds."""

    def __init__(self, host: str) -> None:
        settings = Settings(host=host)
        if "measure_threads" not in settings.model_fields_set:
            settings = settings.model_copy(update={"measure_threads": assigned_cores(settings.measure_threads)})
        self._settings = settings

    def __serve_build_asgi_app__(self) -> FastAPI:
        logs.configure(self._settings.log_level, self._settings.log_format)
        keep_large_blocks()
        sys.setswitchinterval(SWITCH_SECONDS)
        self._application = create_app(self._settings)
        return self._application

    async def check_health(self) -> None:
        """Ray asks now and then, and starts another process in the place of one that fails three times."""
        state = await self._services.readiness.look()
        reasons = [state.reasons[name] for name in MENDED_ANEW if name in state.reasons]
        if reasons:
            raise Unhealthy("; ".join(reasons))

    async def exposition(self) -> tuple[str, bytes]:
        """Who this is, and what it shows at /metrics, for the exporter."""
        document = await self._services.scrapes.get(TEXT)
        return serve.get_replica_context().replica_id.unique_id, b"".join(document.read())

    @property
    def _services(self) -> Services:
        services: Services = self._application.state.services
        return services


def assigned_cores(most: int) -> int:
    """How many cores Ray has counted for this process, at least one, at most so many."""
    assigned = ray.get_runtime_context().get_assigned_resources().get("CPU", most)
    return max(1, min(most, int(assigned)))
