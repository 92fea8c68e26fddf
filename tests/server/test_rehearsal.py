"""What pages ask is answered once before the service is ready; where that fails it is ready all the same."""

import time

import pytest
from offpolicy_monitor.pages.report import call_of_series
from offpolicy_monitor.server import rehearsal
from offpolicy_monitor.store import Store

from tests.fixtures.application import JSON, Application, Client, json_bytes


def ready(client: Client) -> None:
    deadline = time.monotonic() + 30
    while client.get("/readyz").status_code != 200:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def forbidden(*_: object, **__: object) -> None:
    raise AssertionError("read once more")


def test_the_first_page_after_a_start_finds_what_takes_longest(
    application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    with application() as client:
        assert client.post("/v1/runs/r1/batches", content=json_bytes(), headers=JSON).status_code == 200
    with application() as client:
        ready(client)
        # Nobody looks at it: what a step changes is read once somebody asks.
        assert client.post("/v1/runs/r1/batches", content=json_bytes(step=8), headers=JSON).status_code == 200
        assert client.app.state.services.store.moved(0.0) == []
    with application() as client:
        ready(client)
        for name in ("summaries", "whole_summaries", "spread_summaries"):
            monkeypatch.setattr(Store, name, forbidden)
        monkeypatch.setattr("offpolicy_monitor.store.rows.series._read_together", forbidden)
        about = client.get("/v1/runs/r1").json()
        for call in (
            call_of_series("r1", about),
            "v1/runs/r1/verdict",
            "v1/runs/r1/diagnosis",
            "v1/runs/r1/recommendations",
            "v1/runs/r1/whatif?method=opsm",
        ):
            assert client.get(f"/{call}").status_code == 200, call


def test_a_service_without_runs_and_one_that_cannot_answer_are_ready(
    application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    with application() as client:
        ready(client)
        assert rehearsal.of_pages(client.app.state.services) == 0
    for part, name in ((rehearsal, "of_pages"), (Store, "view_runs"), (Store, "exported")):
        monkeypatch.setattr(part, name, forbidden)
        with application() as client:
            ready(client)
