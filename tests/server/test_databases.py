"""The same requests over either kind of database."""

from offpolicy_monitor.server.app import create_app
from offpolicy_monitor.settings import Settings

from tests.fixtures.application import JSON, json_bytes, running

URL = "/v1/runs/r1/batches"


def test_a_batch_is_stored_read_back_and_shown_whatever_the_database(database_url: str) -> None:
    with running(create_app(Settings(database_url=database_url, device="cpu"))) as client:
        stored = client.post(URL, content=json_bytes(), headers=JSON).json()
        assert client.post(URL, content=json_bytes(), headers=JSON).json() == {**stored, "duplicate": True}
        assert client.post(URL, content=json_bytes(logprobs=[-1.0] * 5), headers=JSON).status_code == 409
        assert client.get("/v1/runs/r1/steps/7").json()["gaps"] == stored["gaps"]
        assert client.get("/readyz").json()["checks"]["schema"] is True
        assert 'offpolicy_step{run="r1"} 7.0' in client.get("/metrics").text
