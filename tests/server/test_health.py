"""Health: alive is one thing, ready another."""

import threading
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from offpolicy_monitor.measure import Measurer
from offpolicy_monitor.server.app import create_app
from offpolicy_monitor.settings import Settings

from tests.fixtures.application import JSON, Client, database, json_bytes, running


class SlowToWarm(Measurer):
    """A device that is not warm until it is let."""

    let = threading.Event()

    def warm_up(self) -> None:
        self.let.wait(30)


class Broken(Measurer):
    """A device that fails on every batch."""

    def measure(self, *_: Any, **__: Any) -> Any:
        raise ValueError("the device is on fire")


def ready_within(client: Client, tries: int = 200) -> Any:
    for _ in range(tries):
        response = client.get("/readyz")
        if response.status_code == 200:
            break
    return response


def app_with(measurer: type[Measurer], folder: Path) -> FastAPI:
    return create_app(Settings(database_url=database(folder)), lambda _: measurer("cpu"))


def test_a_running_service_is_alive_and_ready(client: Client) -> None:
    assert client.get("/healthz").json()["status"] == "alive"
    assert ready_within(client).json() == {
        "status": "ready",
        "checks": {"store": True, "schema": True, "device": True},
    }


def test_the_service_is_not_ready_before_its_device_is_warm(tmp_path: Path, migrated_copy: None) -> None:
    with running(app_with(SlowToWarm, tmp_path)) as client:
        response = client.get("/readyz")
        assert (response.status_code, response.headers["retry-after"]) == (503, "1")
        assert response.json()["checks"] == {"store": True, "schema": True, "device": False}
        assert client.get("/healthz").status_code == 200
        SlowToWarm.let.set()
        assert ready_within(client).status_code == 200


def test_the_service_is_not_ready_over_a_schema_that_is_not_current(tmp_path: Path) -> None:
    with running(create_app(Settings(database_url=database(tmp_path)))) as client:
        assert client.get("/readyz").json()["checks"]["schema"] is False


def test_a_defect_is_a_problem_document_and_the_next_request_is_served(
    tmp_path: Path, migrated_copy: None, capsys: pytest.CaptureFixture[str]
) -> None:
    with running(app_with(Broken, tmp_path)) as client:
        response = client.post("/v1/runs/r1/batches", content=json_bytes(), headers=JSON)
        assert (response.status_code, response.headers["content-type"]) == (500, "application/problem+json")
        assert response.json()["type"] == "urn:offpolicy-monitor:problem:internal"
        assert "fire" not in response.text
        assert client.get("/healthz").status_code == 200
        assert 'offpolicy_rejected_requests_total{reason="internal"} 1.0' in client.get("/metrics").text
    assert "the device is on fire" in "".join(capsys.readouterr())
