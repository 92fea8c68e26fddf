"""A shard that is stored already, or cannot be, is answered without being measured; no body is read twice."""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from offpolicy_monitor.measure import Measurer
from offpolicy_monitor.pipeline import shards as pipeline_shards
from offpolicy_monitor.server.app import create_app
from offpolicy_monitor.settings import Settings
from offpolicy_monitor.store.rows import narrow
from offpolicy_monitor.summary import stored
from offpolicy_monitor.summary.step import StepSummary
from offpolicy_monitor.wire.message import Message

from tests.fixtures.application import JSON, SAFETENSORS, Client, database, good_frame, json_bytes, running
from tests.fixtures.reduced import arrays_of, envelope_of, summary_body

URL = "/v1/runs/r1/batches"


class Counting(Measurer):
    """Counts what it measures beyond the warm-up; `meanwhile` happens while it does."""

    measured = 0

    @staticmethod
    def meanwhile() -> None:
        """Nothing."""

    def warm_up(self) -> None:
        """Nothing."""

    def measure(self, *args: Any, **options: Any) -> StepSummary:
        self.measured += 1
        self.meanwhile()
        return super().measure(*args, **options)


@pytest.fixture
def device() -> Counting:
    return Counting("cpu")


@pytest.fixture
def client(tmp_path: Path, migrated_copy: None, device: Counting) -> Iterator[Client]:
    with running(create_app(Settings(database_url=database(tmp_path)), lambda _: device)) as client:
        yield client


def test_a_duplicate_answers_the_same_figures_without_being_measured(client: Client, device: Counting) -> None:
    first = client.post(URL, content=json_bytes(), headers=JSON).json()
    again = client.post(URL, content=json_bytes(), headers=JSON).json()
    assert again == {**first, "duplicate": True}
    assert device.measured == 1
    assert 'offpolicy_duplicate_batches_total{run="r1"} 1.0' in client.get("/metrics").text


@pytest.mark.parametrize(
    "changes", [{"logprobs": [-1.0] * 5}, {"shards": 2}, {"attempt": 0}], ids=["conflict", "shards", "attempt"]
)
def test_what_cannot_be_stored_is_refused_without_being_measured(
    client: Client, device: Counting, changes: dict[str, Any]
) -> None:
    client.post(URL, content=json_bytes(attempt=1), headers=JSON)
    refused = client.post(URL, content=json_bytes(**{"attempt": 1, **changes}), headers=JSON)
    assert refused.status_code == 409
    assert device.measured == 1


def test_a_first_half_is_no_conflict_with_the_whole_that_was_stored(client: Client) -> None:
    half = json_bytes(rollout="p1", logprobs=None)
    for body in (half, json_bytes(rollout="p1"), half):
        assert client.post(URL, content=body, headers=JSON).status_code == 200


def test_a_reduced_shard_that_is_stored_is_known_after_the_rows_changed(client: Client) -> None:
    body = summary_body(envelope_of(0, 1), arrays_of(1))
    first = client.post(URL, content=body, headers=SAFETENSORS).json()
    client.request("PATCH", "/v1/runs/r1", json={"methods": []})
    again = client.post(URL, content=body, headers=SAFETENSORS).json()
    assert (again["duplicate"], again["gaps"], again["methods"]) == (True, first["gaps"], first["methods"])


def test_the_store_is_not_asked_about_what_follows_what_is_stored_here(
    client: Client, monkeypatch: pytest.MonkeyPatch, device: Counting
) -> None:
    asked: list[str] = []
    shards = client.app.state.services.pipeline.shards
    look_up = shards.look_up

    def counted(run: str, claim: Any) -> Any:
        asked.append(run)
        return look_up(run, claim)

    monkeypatch.setattr(shards, "look_up", counted)
    for step in (1, 2, 3):
        assert client.post(URL, content=good_frame(step=step), headers=SAFETENSORS).status_code == 200
    assert (asked, device.measured) == (["r1"], 3)
    assert client.post(URL, content=good_frame(step=2), headers=SAFETENSORS).json()["duplicate"]
    assert (asked, device.measured) == (["r1"] * 2, 3)


@pytest.mark.parametrize(("body", "headers"), [(good_frame, SAFETENSORS), (json_bytes, JSON)], ids=["frame", "json"])
def test_what_was_measured_while_its_rows_changed_is_measured_again(
    client: Client, device: Counting, body: Callable[..., bytes], headers: dict[str, str]
) -> None:
    store = client.app.state.services.store
    assert client.post(URL, content=body(step=1), headers=headers).status_code == 200

    def change() -> None:
        device.meanwhile = lambda: None
        store.update_run("r1", methods=[])

    device.meanwhile = change
    answer = client.post(URL, content=body(step=2), headers=headers)
    assert (answer.status_code, answer.json()["methods"], answer.json()["duplicate"]) == (200, {}, False)
    assert device.measured == 3
    assert client.get("/v1/runs/r1/steps/2").json()["methods"] == {}


def test_rows_that_never_stand_still_are_a_busy_service(client: Client, device: Counting) -> None:
    store, rows = client.app.state.services.store, iter(range(1, 100))
    client.post(URL, content=good_frame(step=1), headers=SAFETENSORS)

    def change() -> None:
        row = {"name": f"r{next(rows)}", "method": "opsm", "gap": "total", "level": "geometric", "delta": 0.01}
        store.update_run("r1", methods=[row])

    device.meanwhile = change
    answer = client.post(URL, content=good_frame(step=2), headers=SAFETENSORS)
    assert (answer.status_code, "Retry-After" in answer.headers) == (503, True)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often what a shard goes through is done, by name."""
    counts = Counter[str]()

    def count(place: Any, name: str) -> None:
        function = getattr(place, name)

        def counting(*args: Any, **options: Any) -> Any:
            counts[name] += 1
            return function(*args, **options)

        monkeypatch.setattr(place, name, counting)

    for name in ("decode_batch", "digest_of"):
        count(pipeline_shards, name)
    for name in ("to_bytes", "from_bytes"):
        count(stored, name)
    count(narrow, "_headline")
    count(Message, "owned")
    count(StepSummary, "told")
    return counts


HALF = {"logprobs": None, "rollout": "p1"}
NEW = {"decode_batch": 1, "digest_of": 1, "to_bytes": 1, "_headline": 1, "told": 1}


@pytest.mark.parametrize(("body", "headers"), [(good_frame, SAFETENSORS), (json_bytes, JSON)], ids=["frame", "json"])
def test_nothing_is_done_twice_on_the_way_of_a_shard(
    client: Client, counted: Counter[str], body: Callable[..., bytes], headers: dict[str, str]
) -> None:
    def done(**changes: Any) -> dict[str, int]:
        counted.clear()
        assert client.post(URL, content=body(**changes), headers=headers).status_code == 200
        return dict(counted)

    assert done(step=1) == NEW, "the first of a run, of which the store is asked"
    assert done(step=2) == NEW
    assert done(step=2) == {"decode_batch": 1, "digest_of": 1, "from_bytes": 1, "told": 1}, "a duplicate"
    assert done(step=0) == NEW, "older than what is known, of which the store is asked"


def test_nothing_is_done_twice_on_the_way_of_a_half(client: Client, counted: Counter[str]) -> None:
    for half, wanted in (
        (json_bytes(step=1, **HALF), {"decode_batch": 1, "digest_of": 1, "owned": 1, "told": 1}),
        (json_bytes(step=1, rollout="p1"), NEW),
    ):
        counted.clear()
        assert client.post(URL, content=half, headers=JSON).status_code == 200
        assert dict(counted) == wanted


def test_a_duplicate_whose_run_was_deleted_meanwhile_is_measured_as_new(
    client: Client, device: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert client.post(URL, content=good_frame(), headers=SAFETENSORS).status_code == 200
    shards, store = client.app.state.services.pipeline.shards, client.app.state.services.store
    look_up = shards.look_up

    def deleted_then(run: str, claim: Any) -> Any:
        known = look_up(run, claim)
        monkeypatch.setattr(shards, "look_up", look_up)
        store.delete_run(run)
        return known

    monkeypatch.setattr(shards, "look_up", deleted_then)
    answer = client.post(URL, content=good_frame(), headers=SAFETENSORS)
    assert (answer.status_code, answer.json()["duplicate"], device.measured) == (200, False, 2)
    assert client.get("/v1/runs/r1/steps/7").status_code == 200
