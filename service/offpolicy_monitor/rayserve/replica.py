"""Replica: the application in one process of Ray's, made there and not sent there.

What Ray asks of it: its application, whether it is in health, what it has counted.
"""

import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import ray
from ray import serve
from ray.serve.handle import DeploymentHandle

from offpolicy_monitor import logs
from offpolicy_monitor.exposition.formats import asked_for
from offpolicy_monitor.rayserve.drain import Drain
from offpolicy_monitor.rayserve.siblings import Message, Replicas
from offpolicy_monitor.server.app import create_app
from offpolicy_monitor.server.memory import set_up_malloc
from offpolicy_monitor.server.process import DRAIN, SWITCH_SECONDS
from offpolicy_monitor.server.services import Services
from offpolicy_monitor.server.workers.membership import Membership
from offpolicy_monitor.settings import Settings

#: What a new process would mend. A database that is away is no such thing: requests are answered 503 meanwhile.
MENDED_ANEW: Final = ("stages",)
#: How long others have to take what they are told, seconds; who stands still takes it later.
TOLD_WITHIN: Final = 1.0


class Unhealthy(RuntimeError):
    """Ray is to put another in its place."""


@serve.ingress()
class Monitor:
    """The service, with the settings of its environment; `host` is what the proxy binds."""

    def __init__(self, host: str) -> None:
        settings = Settings(host=host)
        chosen: dict[str, int] = {"measure_processes": 0}  # other replicas are what the cores are for
        if "measure_threads" not in settings.model_fields_set:
            chosen["measure_threads"] = assigned_cores(settings.measure_threads)
        settings = settings.model_copy(update=chosen)
        self._settings = settings
        self._replicas: DeploymentHandle | None = None

    def __serve_build_asgi_app__(self) -> Drain:
        logs.configure(self._settings.log_level, self._settings.log_format)
        set_up_malloc()
        sys.setswitchinterval(SWITCH_SECONDS)
        self._siblings = Replicas(serve.get_replica_context().replica_id.unique_id, self._tell)
        self._application = create_app(self._settings, membership=Membership(self._siblings))
        self._drain = Drain(self._application)
        return self._drain

    async def check_health(self) -> None:
        """Ray asks now and then, and starts another process in the place of one that fails three times."""
        state = await self._services.readiness.look()
        reasons = [state.reasons[name] for name in MENDED_ANEW if name in state.reasons]
        if reasons:
            raise Unhealthy("; ".join(reasons))

    async def drain(self) -> int:
        """Before everything ends: as one service does, answer what is in flight, and take nothing else."""
        self._services.events.close()
        self._services.pipeline.stop()
        return await self._drain.drain(DRAIN)

    async def told(self, source: str, messages: Sequence[Message]) -> None:
        """Another replica has stored and changed this."""
        self._siblings.received(source, messages)

    async def exposition(self, content_type: str) -> tuple[str, bytes]:
        """Who this is, and what it shows at /metrics in a format, for the exporter."""
        document = await self._services.scrapes.get(asked_for(content_type))
        return serve.get_replica_context().replica_id.unique_id, b"".join(document.read())

    async def _tell(self, source: str, messages: Sequence[Message]) -> None:
        if self._replicas is None:
            context = serve.get_replica_context()
            self._replicas = serve.get_deployment_handle(context.deployment, context.app_name)
        with suppress(TimeoutError):
            asked = self._replicas.broadcast("told", source, messages)
            await asked.results_async(timeout_s=TOLD_WITHIN, return_exceptions=True)

    @property
    def _services(self) -> Services:
        services: Services = self._application.state.services
        return services


def assigned_cores(most: int) -> int:
    """How many cores Ray has counted for this process, at least one, at most so many."""
    assigned = ray.get_runtime_context().get_assigned_resources().get("CPU", most)
    return max(1, min(most, int(assigned)))
