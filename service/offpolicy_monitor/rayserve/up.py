"""A cluster of this machine for one deployment, until it is told to stop.

Ray is imported once its variables are set.
"""

import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final

import structlog

from offpolicy_monitor.addresses import is_loopback
from offpolicy_monitor.errors import ConfigurationError, Unavailable
from offpolicy_monitor.rayserve.options import Options, prepare
from offpolicy_monitor.settings import Settings

log = structlog.get_logger("offpolicy_monitor.server")
#: Bytes of Ray's shared memory, of which nothing here makes use: the least that it takes.
OBJECT_STORE: Final = 80 << 20
#: How often it is tried to start Ray.
STARTS: Final = 3


def serve_here(settings: Settings, insecure: bool, options: Options, started: Callable[[], None]) -> int:
    """Serve until told to stop, and answer the signal that told it. `started` is called once all replicas are there.

    Raises ConfigurationError for what cannot be served so, and Unavailable where Ray or the replicas do not start.
    """
    # A short path: those of sockets have at most 107 characters.
    with tempfile.TemporaryDirectory(prefix="opm-ray-") as folder:
        prepare(os.environ, Path(folder), sys.platform == "linux")
        import ray
        from ray import serve

        from offpolicy_monitor.rayserve import application

        host = settings.host
        given: dict[str, Any] = {"host": host, "insecure": insecure, **options.model_dump()}
        targets = [
            serve.RunTarget(application.monitor(given), application.NAME, application.ROUTE),
            serve.RunTarget(application.exporter({"host": host}), application.METRICS, application.METRICS_ROUTE),
        ]
        _begin(
            num_cpus=-int(-options.most * options.num_cpus // 1),
            include_dashboard=False,
            object_store_memory=OBJECT_STORE,
            _node_ip_address="127.0.0.1" if is_loopback(host) else None,
        )
        try:
            refuse_short(ray.cluster_resources(), options)
            with told_to_stop() as told:
                serve.start(
                    proxy_location="HeadOnly",
                    logging_config=application.LOGGED,
                    http_options={"host": host, "port": settings.port, "keep_alive_timeout_s": settings.keep_alive},
                )
                _deploy(targets)
                started()
                number = told()
                _drain()
                return number
        finally:
            serve.shutdown()
            ray.shutdown()


def refuse_short(has: Mapping[str, float], options: Options) -> None:
    """ConfigurationError where Ray would wait for ever for GPUs that the machine does not have."""
    wanted, there = options.replicas * options.num_gpus, has.get("GPU", 0.0)
    if wanted > there:
        raise ConfigurationError(
            f"{options.replicas} replicas of {options.num_gpus:g} GPU need {wanted:g}, and Ray finds {there:g} here: "
            "lower --num-gpus or --replicas"
        )


def _deploy(targets: list[Any]) -> None:
    """Return once all replicas are there."""
    from ray import serve

    try:
        serve.run_many(targets)
    except RuntimeError as error:  # of a replica's own reason Ray tells its log alone
        reason = f"the replicas do not start, and the lines before say why: {error}"
        raise Unavailable(503, "ray-unavailable", reason) from error


def _drain() -> None:
    """Have the replicas answer what is in flight, which Ray's end would cut off."""
    from ray import serve

    from offpolicy_monitor.rayserve import application

    try:
        replicas = serve.get_deployment_handle(application.MONITOR, application.NAME)
        replicas.broadcast("drain").results(timeout_s=application.GRACE, return_exceptions=True)
    except Exception as error:  # a boundary: where none is there, the end goes on all the same
        log.warning("ended without asking the replicas", reason=str(error).partition("\n")[0])


def _begin(**how: Any) -> None:
    """Start Ray, which gives its own parts 30 seconds and then up: a busy machine takes longer the first time."""
    import ray

    for left in reversed(range(STARTS)):
        try:
            ray.init(**how)
            return
        except Exception as error:  # a boundary: Ray raises nothing more exact
            ray.shutdown()
            if not left:
                raise Unavailable(503, "ray-unavailable", f"Ray does not start: {error}") from error
            log.warning("Ray has not started, and is started anew", reason=str(error).partition("\n")[0])


@contextmanager
def told_to_stop() -> Iterator[Callable[[], int]]:
    """Waits for SIGTERM or SIGINT and answers which it was; Ray, which has handlers of its own, must have begun."""
    said: list[int] = []
    event = threading.Event()

    def hear(number: int, frame: FrameType | None) -> None:
        if said:  # a second one does not wait
            raise KeyboardInterrupt
        said.append(number)
        event.set()

    def wait() -> int:
        event.wait()
        return said[0]

    former = {number: signal.signal(number, hear) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield wait
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
