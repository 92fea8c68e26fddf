"""Applications: what Ray Serve runs, by `serve run` with deploy/ray/serve.yaml, or by `offpolicy-monitor ray up`."""

from typing import Any, Final

from ray import serve
from ray.serve import Application
from ray.serve.config import AutoscalingConfig, BackpressureConfig

from offpolicy_monitor.rayserve.exporter import Exporter
from offpolicy_monitor.rayserve.options import Options, refuse_alone
from offpolicy_monitor.rayserve.replica import Monitor
from offpolicy_monitor.server.process import DRAIN, refuse_open
from offpolicy_monitor.settings import Settings

#: The applications, where each answers, and the deployment of replicas.
NAME: Final = "offpolicy-monitor"
ROUTE: Final = "/"
METRICS: Final = "offpolicy-monitor-metrics"
METRICS_ROUTE: Final = "/metrics"
MONITOR: Final = "Monitor"
LOOPBACK: Final = "127.0.0.1"
#: Seconds after which a replica that is to end is killed: it answers what is in flight, as the service alone does.
GRACE: Final = DRAIN + 10
#: How often Ray asks a replica whether it is in health, and how long it has to say so, seconds.
HEALTH_SECONDS, HEALTH_WITHIN = 5, 20
#: What Ray logs: the service has a line for each request itself.
LOGGED: Final = {"log_level": "WARNING", "enable_access_log": False}


def monitor(args: dict[str, Any]) -> Application:
    """The replicas; `args`: `host`, which the proxy binds, `insecure`, and options.

    Raises ConfigurationError for what could not be served by several processes, or would be open to others.
    """
    host, insecure, options = _read(args)
    settings = Settings(host=host)
    refuse_alone(settings)
    if not insecure:
        refuse_open(settings)
    deployment = serve.deployment(
        Monitor,
        name=MONITOR,
        autoscaling_config=AutoscalingConfig(
            min_replicas=options.replicas,
            max_replicas=options.most,
            target_ongoing_requests=options.target_ongoing_requests,
        ),
        max_ongoing_requests=options.max_ongoing_requests,
        max_queued_requests=options.max_queued_requests,
        backpressure_config=BackpressureConfig(status_code=429, retry_after_s=options.retry_after),
        ray_actor_options={"num_cpus": options.num_cpus, "num_gpus": options.num_gpus},
        graceful_shutdown_timeout_s=GRACE,
        health_check_period_s=HEALTH_SECONDS,
        health_check_timeout_s=HEALTH_WITHIN,
        logging_config=LOGGED,
    )
    return deployment.bind(host)


def exporter(args: dict[str, Any]) -> Application:
    """The exporter; `args`: `host`, as that of the replicas."""
    host, _, _ = _read(args)
    refuse_alone(Settings(host=host))
    deployment = serve.deployment(
        Exporter,
        name="Exporter",
        num_replicas=1,
        ray_actor_options={"num_cpus": 0},
        max_ongoing_requests=16,
        logging_config=LOGGED,
    )
    return deployment.bind(host, MONITOR, NAME)


def _read(args: dict[str, Any]) -> tuple[str, bool, Options]:
    given = dict(args)
    host, insecure = str(given.pop("host", LOOPBACK)), bool(given.pop("insecure", False))
    return host, insecure, Options.of(given)
