"""Health: alive is one thing, ready another."""

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from offpolicy_monitor.measure import Measurer
from offpolicy_monitor.server.app import create_app
from offpolicy_monitor.server.judge import RulesJudge
from offpolicy_monitor.server.readiness import WARMING, waited_for
from offpolicy_monitor.settings import Settings
from offpolicy_monitor.store import Store
from structlog.testing import capture_logs

from tests.fixtures.application import JSON, Application, Client, database, json_bytes, running, wait_until_ready
from tests.fixtures.fused import loaded_pass
from tests.fixtures.prometheus import wait_for
from tests.fixtures.shards import make_record


class SlowToWarm(Measurer):
    """A device that is not warm until it is let."""

    let = threading.Event()

    def warm_up(self) -> None:
        self.let.wait(30)


class Broken(Measurer):
    """A device that fails on every batch."""

    def measure(self, *_: Any, **__: Any) -> Any:
        raise ValueError("the device is on fire")


class Exhausted(Measurer):
    """A device that fails in a way that no future can hold."""

    def measure(self, *_: Any, **__: Any) -> Any:
        raise StopIteration("the device is on fire")


class Stuck(Measurer):
    """A device that does not come back from a batch until it is let."""

    let = threading.Event()

    def measure(self, *args: Any, **options: Any) -> Any:
        assert self.let.wait(30)
        return super().measure(*args, **options)

    def warm_up(self) -> None:
        """Nothing: it would wait too."""


def once_ready(client: Client) -> httpx.Response:
    """What /readyz answers once it is 200."""
    wait_until_ready(client)
    return client.get("/readyz")


def app_with(measurer: type[Measurer], folder: Path) -> FastAPI:
    return create_app(Settings(database_url=database(folder)), lambda _: measurer("cpu"))


@pytest.mark.parametrize(("compiled", "form"), [(True, "fused"), (False, "torch")])
def test_a_running_service_is_alive_and_ready(application: Application, compiled: bool, form: str) -> None:
    if compiled:
        loaded_pass()
    with application(torch_compile=compiled) as client:
        assert client.get("/healthz").json()["status"] == "alive"
        assert once_ready(client).json() == {
            "status": "ready",
            "checks": {"store": True, "schema": True, "device": True, "stages": True},
            "measured_by": form,
        }


def test_a_compilation_that_fails_is_a_metric_and_torch_goes_on(
    tmp_path: Path, migrated_copy: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cache = tmp_path / "offpolicy-monitor"
    cache.mkdir()
    cache.chmod(0o777)  # what others can write to is not trusted
    settings: dict[str, Any] = {"database_url": database(tmp_path), "device": "cpu"}
    for wanted in (True, False):
        with running(create_app(Settings(**settings, torch_compile=wanted))) as client:

            def failed(client: Client = client) -> bool:
                lines = client.get("/metrics").text.splitlines()
                (line,) = [line for line in lines if line.startswith("offpolicy_compilation_failed ")]
                return line.endswith(" 1.0")

            if wanted:
                wait_for(failed, 60)
            else:
                assert not failed()
            assert once_ready(client).json()["measured_by"] == "torch"
    assert not list(cache.iterdir())


def test_the_service_is_not_ready_before_its_device_is_warm(tmp_path: Path, migrated_copy: None) -> None:
    SlowToWarm.let.clear()
    with running(app_with(SlowToWarm, tmp_path)) as client:
        response = client.get("/readyz")
        assert (response.status_code, response.headers["retry-after"]) == (503, "1")
        assert response.json()["checks"] == {"store": True, "schema": True, "device": False, "stages": True}
        assert response.json()["reasons"] == {"device": WARMING}
        assert response.json()["reason"].startswith("the device measures a first batch, and what the list")
        assert client.get("/healthz").status_code == 200
        SlowToWarm.let.set()
        wait_until_ready(client)


def test_the_service_is_ready_once_it_has_read_what_a_list_of_runs_shows(tmp_path: Path, migrated_copy: None) -> None:
    with closing(Store.open(database(tmp_path), judge=RulesJudge())) as store:
        store.ingest([make_record(step, run=run) for run in ("a", "b") for step in range(3)])
    with running(create_app(Settings(database_url=database(tmp_path)))) as client:
        wait_until_ready(client)
        kept = client.app.state.services.store._overviews._kept
        assert sorted(len(overview.drawn.steps) for overview in kept.values()) == [3, 3]
        assert len(client.get("/v1/runs").json()["runs"]) == 2


def test_the_service_is_not_ready_over_a_schema_that_is_not_current(tmp_path: Path) -> None:
    with running(create_app(Settings(database_url=database(tmp_path)))) as client:
        answer = client.get("/readyz").json()
    assert answer["checks"]["schema"] is False
    assert answer["reasons"]["schema"] == "the schema is not current: offpolicy-monitor db upgrade"


class Unfit(Measurer):
    """A device that cannot measure at all."""

    def warm_up(self) -> None:
        raise RuntimeError("no kernel image")


def test_a_device_that_cannot_measure_is_the_reason_and_the_log_says_what_is_waited_for(
    tmp_path: Path, migrated_copy: None
) -> None:
    with capture_logs() as lines, running(app_with(Unfit, tmp_path)) as client:

        def found() -> Any:
            reasons = client.get("/readyz").json()["reasons"]
            return None if reasons == {"device": WARMING} else reasons

        reasons = wait_for(found)
        said = [line for line in lines if line["event"] == "not ready yet"]
    assert list(reasons) == ["device"]
    assert "cannot measure (RuntimeError)" in reasons["device"] and "OFFPOLICY_DEVICE=cpu" in reasons["device"]
    assert said and said[0]["device"] in (WARMING, reasons["device"])


def test_the_log_says_when_the_service_is_ready_and_what_it_waited_for_until_then(
    tmp_path: Path, migrated_copy: None
) -> None:
    SlowToWarm.let.clear()
    with capture_logs() as lines, running(app_with(SlowToWarm, tmp_path)) as client:
        client.run(until(lambda: any(line["event"] == "not ready yet" for line in lines)))
        SlowToWarm.let.set()
        client.run(until(lambda: any(line["event"] == "ready" for line in lines)))
    told = [line for line in lines if line["event"] in ("not ready yet", "ready")]
    assert [line["event"] for line in told] == ["not ready yet", "ready"]
    assert (told[0]["device"], told[1]["measured_by"]) == (WARMING, "torch")
    assert told[1]["seconds"] >= 0


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.01)


def test_a_start_that_takes_long_says_what_it_waits_for_and_a_short_one_nothing() -> None:
    with capture_logs() as lines:
        with waited_for("the moon", seconds=30.0):
            pass
        with waited_for("the sun", seconds=0.01):
            time.sleep(0.2)
    assert [line["waits_for"] for line in lines] == ["the sun"]


@pytest.mark.parametrize("measurer", [Broken, Exhausted])
def test_a_defect_is_a_problem_document_and_the_next_request_is_served(
    tmp_path: Path, migrated_copy: None, capsys: pytest.CaptureFixture[str], measurer: type[Measurer]
) -> None:
    with running(app_with(measurer, tmp_path)) as client:
        response = client.post("/v1/runs/r1/batches", content=json_bytes(), headers=JSON)
        assert (response.status_code, response.headers["content-type"]) == (500, "application/problem+json")
        assert response.json()["type"] == "urn:offpolicy-monitor:problem:internal"
        assert "fire" not in response.text
        assert client.get("/healthz").status_code == 200
        assert 'offpolicy_rejected_requests_total{reason="internal"} 1.0' in client.get("/metrics").text
    assert "the device is on fire" in "".join(capsys.readouterr())


def test_a_stage_whose_oldest_job_is_too_old_makes_the_service_not_ready_and_is_named(
    tmp_path: Path, migrated_copy: None
) -> None:
    app = create_app(Settings(database_url=database(tmp_path), max_job_age=0.2), lambda _: Stuck("cpu"))
    with running(app) as client:
        wait_until_ready(client)

        async def scenario() -> tuple[httpx.Response, httpx.Response]:
            post = asyncio.create_task(client.http.post("/v1/runs/r1/batches", content=json_bytes(), headers=JSON))
            async with asyncio.timeout(30):
                while True:
                    seen = await client.http.get("/readyz")
                    if "measure" in seen.json().get("stuck", ()):  # on a busy machine decoding takes so long before
                        break
                    await asyncio.sleep(0.01)
            Stuck.let.set()
            return seen, await post

        seen, answered = client.run(scenario())
        assert (seen.status_code, seen.json()["checks"]["stages"]) == (503, False)
        assert list(seen.json()["stuck"]) == ["measure"]
        assert seen.json()["stuck"]["measure"] >= 0.2
        assert "measure for " in seen.json()["reasons"]["stages"]
        assert "OFFPOLICY_MAX_JOB_AGE is 0.2 s" in seen.json()["reason"]
        assert answered.status_code == 200
        assert once_ready(client).json()["checks"]["stages"] is True
