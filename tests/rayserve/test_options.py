"""What is chosen of a deployment under Ray is checked, and what Ray's processes need is set where it is not."""

from pathlib import Path

import pytest
import yaml
from offpolicy_monitor.errors import ConfigurationError
from offpolicy_monitor.rayserve.bodies import NOT_AHEAD, AsAskedFor, middlewares
from offpolicy_monitor.rayserve.options import FILES, VARIABLES, Options, prepare, refuse_alone
from offpolicy_monitor.rayserve.up import refuse_short
from offpolicy_monitor.settings import Settings
from pydantic import ValidationError
from starlette.types import Receive, Scope, Send

from tests.fixtures.rays import require_ray

ROOT = Path(__file__).resolve().parents[2]


def test_sqlite_is_refused_with_the_reason() -> None:
    with pytest.raises(ConfigurationError, match=r"takes one process that writes.*use PostgreSQL"):
        refuse_alone(Settings(database_url="sqlite:///run.db"))
    refuse_alone(Settings(database_url="postgresql+psycopg://host/offpolicy"))


def test_more_than_the_most_and_what_there_is_not_are_refused_by_name() -> None:
    assert Options.of({"replicas": 3, "max_replicas": None}).most == 3
    wrong: list[tuple[dict[str, float], str]] = [
        ({"replicas": 3, "max_replicas": 2}, "max_replicas"),
        ({"replicas": 0}, "replicas: "),
        ({"num_gpus": -0.5}, "num_gpus: "),
        ({"gpus": 1}, "gpus: "),
    ]
    for given, said in wrong:
        with pytest.raises(ConfigurationError, match=said):
            Options.of(given)


def test_gpus_that_are_not_there_are_refused_before_anything_waits_for_them() -> None:
    options = Options.of({"replicas": 3, "num_gpus": 0.5})
    with pytest.raises(ConfigurationError, match=r"3 replicas of 0\.5 GPU need 1\.5, and Ray finds 1 here"):
        refuse_short({"CPU": 3.0, "GPU": 1.0}, options)
    refuse_short({"GPU": 2.0}, options)
    refuse_short({"CPU": 1.0}, Options.of({"replicas": 3}))


def test_what_is_set_stays_and_files_lie_in_a_folder_of_ones_own() -> None:
    environment = {"RAY_AUTH_MODE": "disabled"}
    prepare(environment, Path("/folder"), linux=True)
    assert environment.pop("RAY_AUTH_MODE") == "disabled"
    assert {name for name in environment if environment[name].startswith("/folder")} == set(FILES)
    assert {name: environment[name] for name in VARIABLES if name != "RAY_AUTH_MODE"} == {
        name: value for name, value in VARIABLES.items() if name != "RAY_AUTH_MODE"
    }


def test_where_there_is_no_haproxy_bodies_come_as_rays_own_proxy_hands_them_over() -> None:
    environment: dict[str, str] = {}
    prepare(environment, Path("/folder"), linux=False)
    assert environment["RAY_SERVE_ENABLE_HA_PROXY"] == "0"
    assert not {"RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD", "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH"} & set(
        environment
    )


async def _refused(scope: Scope, receive: Receive, send: Send) -> None:
    raise AssertionError


def test_no_request_is_read_ahead_whatever_its_client_says() -> None:
    [middleware] = middlewares()
    assert middleware.cls is AsAskedFor
    seen: list[Scope] = []

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope)

    scope = {"type": "http", "headers": [(b"host", b"h"), (NOT_AHEAD[0], b"?0")]}
    coroutine = AsAskedFor(answer)(scope, _refused, _refused)  # pyrefly: ignore[bad-argument-type]
    with pytest.raises(StopIteration):
        coroutine.send(None)
    assert [one["headers"] for one in seen] == [[(b"host", b"h"), NOT_AHEAD]]


def test_the_configuration_file_names_what_there_is_and_what_the_command_does() -> None:
    file = yaml.safe_load((ROOT / "deploy" / "ray" / "serve.yaml").read_text())
    replicas, metrics = file["applications"]
    source = (ROOT / "service" / "offpolicy_monitor" / "rayserve" / "application.py").read_text()
    for application, route in ((replicas, "/"), (metrics, "/metrics")):
        module, _, function = application["import_path"].partition(":")
        assert module == "offpolicy_monitor.rayserve.application" and f"def {function}(" in source
        assert f'"{application["name"]}"' in source and application["route_prefix"] == route
        assert application["args"]["host"] == file["http_options"]["host"] == "127.0.0.1"
    [deployment], options = replicas["deployments"], Options()
    assert deployment["name"] == "Monitor"
    assert deployment["max_ongoing_requests"] == options.max_ongoing_requests
    assert deployment["max_queued_requests"] == options.max_queued_requests
    assert deployment["backpressure_config"] == {"status_code": 429, "retry_after_s": options.retry_after}
    assert deployment["autoscaling_config"]["min_replicas"] == options.replicas
    assert deployment["autoscaling_config"]["target_ongoing_requests"] == options.target_ongoing_requests


def test_ray_reads_the_configuration_file() -> None:
    require_ray()
    from ray.serve.schema import ServeDeploySchema

    text = (ROOT / "deploy" / "ray" / "serve.yaml").read_text()
    read = ServeDeploySchema.model_validate(yaml.safe_load(text))
    assert [application.name for application in read.applications] == [
        "offpolicy-monitor",
        "offpolicy-monitor-metrics",
    ]
    with pytest.raises(ValidationError, match="max_queued_requests"):
        ServeDeploySchema.model_validate(
            yaml.safe_load(text.replace("max_queued_requests: 128", "max_queued_requests: x"))
        )
