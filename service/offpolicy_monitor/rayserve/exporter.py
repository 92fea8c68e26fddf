"""Exporter: the deployment that answers /metrics for all replicas, by one process."""

from collections.abc import Iterable
from typing import Final

from fastapi import FastAPI
from ray import serve
from ray.serve.handle import DeploymentHandle

from offpolicy_monitor import logs
from offpolicy_monitor.rayserve.metrics import Part, application
from offpolicy_monitor.settings import Settings

#: The longest wait for replicas, seconds; those that do not answer in time are left out.
WITHIN: Final = 3.0


@serve.ingress()
class Exporter:
    """Of the replicas of a deployment, of another application."""

    def __init__(self, host: str, deployment: str, application: str) -> None:
        self._settings, self._deployment, self._application = Settings(host=host), deployment, application
        self._replicas: DeploymentHandle | None = None

    def __serve_build_asgi_app__(self) -> FastAPI:
        logs.configure(self._settings.log_level, self._settings.log_format)
        return application(self._settings, self._ask)

    def _ask(self, content_type: str) -> Iterable[Part]:
        if self._replicas is None:
            self._replicas = serve.get_deployment_handle(self._deployment, self._application)
        asked = self._replicas.broadcast("exposition", content_type)
        parts: Iterable[Part] = asked.results(timeout_s=WITHIN, return_exceptions=True)
        return parts
