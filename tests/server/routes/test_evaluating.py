"""POST /v1/evaluate under load: bounded work and memory, answers in pieces, and shards that are measured meanwhile."""

import asyncio
import json
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi import FastAPI
from offpolicy_monitor.batch import UNKNOWN_ORIGIN, Origin, RaggedBatch
from offpolicy_monitor.measure import Measurer
from offpolicy_monitor.methods import PRESETS
from offpolicy_monitor.server.app import create_app
from offpolicy_monitor.server.http.answers import render
from offpolicy_monitor.settings import Settings
from offpolicy_monitor.slices import finished
from offpolicy_monitor.summary.evaluation import Evaluation

from tests.fixtures.application import (
    JSON,
    SAFETENSORS,
    Application,
    Client,
    database,
    frame_bytes,
    good_frame,
    json_bytes,
    running,
)  # fmt: skip
from tests.measure.rows import ROWS
from tests.strategies import packed, random_sequences

SLICES = 200
SECONDS = 0.005  # a slice


class Sliced(Measurer):
    """A device on which an evaluation has SLICES slices of SECONDS each."""

    def __init__(self, device: str = "cpu") -> None:
        super().__init__(device)
        self.begun, self.ended, self.measured = 0, 0, list[int]()

    def evaluation(self, *args: Any, **options: Any) -> Generator[None, None, Evaluation]:
        try:
            for _ in range(SLICES):
                self.begun += 1
                time.sleep(SECONDS)
                yield
            return (yield from super().evaluation(*args, **options))
        finally:
            self.ended += 1

    def measure(self, batch: RaggedBatch, rows: Any, origin: Origin = UNKNOWN_ORIGIN, *rest: Any) -> Any:  # pyrefly: ignore[bad-override]
        self.measured.append(self.begun)
        return super().measure(batch, rows, origin, *rest)


@pytest.fixture
def sliced(tmp_path: Path, migrated_copy: None) -> Iterator[tuple[Client, Sliced, FastAPI]]:
    measurer = Sliced()
    app = create_app(Settings(database_url=database(tmp_path), torch_compile=False), lambda _: measurer)
    with running(app) as client:
        yield client, measurer, app


async def evaluate(client: Client) -> Any:
    return await client.http.post("/v1/evaluate?detail=token", content=good_frame(), headers=SAFETENSORS)


def test_shards_are_measured_between_the_slices_of_an_evaluation(sliced: tuple[Client, Sliced, FastAPI]) -> None:
    client, measurer, _ = sliced

    async def scenario() -> Any:
        evaluation = asyncio.create_task(evaluate(client))
        while not measurer.begun:
            await asyncio.sleep(0)
        shard = await client.http.post("/v1/runs/r/batches", content=good_frame(), headers=SAFETENSORS)
        return shard, await evaluation

    shard, evaluation = client.run(scenario())
    assert (shard.status_code, evaluation.status_code) == (200, 200)
    assert 0 < measurer.measured[-1] < SLICES


def test_an_evaluation_is_given_up_with_503_once_the_service_stops(sliced: tuple[Client, Sliced, FastAPI]) -> None:
    client, measurer, app = sliced

    async def scenario() -> Any:
        evaluation = asyncio.create_task(evaluate(client))
        while not measurer.begun:
            await asyncio.sleep(0)
        app.state.services.pipeline.stop()
        shard = await client.http.post("/v1/runs/r/batches", content=good_frame(), headers=SAFETENSORS)
        return await evaluation, shard

    evaluation, shard = client.run(scenario())
    assert evaluation.status_code == 503 and evaluation.json()["type"].endswith(":stopping")
    assert "Retry-After" in evaluation.headers
    assert shard.status_code == 200
    assert measurer.begun < SLICES and measurer.ended == 1


def test_an_evaluation_is_given_up_when_its_client_is_gone(sliced: tuple[Client, Sliced, FastAPI]) -> None:
    client, measurer, app = sliced

    async def scenario() -> None:
        sent: list[Any] = []
        body = [{"type": "http.request", "body": good_frame(), "more_body": False}]

        async def receive() -> Any:
            if body:
                return body.pop()
            while not measurer.begun:
                await asyncio.sleep(0)
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)

        headers = [(b"host", b"127.0.0.1:8900"), (b"content-type", SAFETENSORS["Content-Type"].encode())]
        scope = {
            "type": "http", "method": "POST", "path": "/v1/evaluate", "raw_path": b"/v1/evaluate", "query_string": b"",
            "headers": headers, "http_version": "1.1", "scheme": "http", "server": ("127.0.0.1", 80),
            "client": ("127.0.0.1", 1), "root_path": "",
        }  # fmt: skip
        await app({**scope, "asgi": {"version": "3.0"}}, receive, send)

    client.run(scenario())
    assert measurer.begun < SLICES and measurer.ended == 1
    assert app.state.services.pipeline.evaluating.used == 0


def test_an_answer_in_pieces_is_the_answer() -> None:
    sent = random_sequences(3, [700, 0, 1, 40_000, 90_000, 3], 0.1)
    sent[0].mask[::7] = [0] * 100
    evaluation = finished(Measurer("cpu").evaluation(packed(sent), ROWS, "token"))
    pieces = list(evaluation.pieces(render))
    assert max(map(len, pieces)) < 2_000_000 < sum(map(len, pieces))
    found, wanted = json.loads(b"".join(pieces)), evaluation.answer()
    for mine, theirs in zip(found["methods"], wanted["methods"], strict=True):
        # A float32 is written as the shortest decimal that it is the nearest float32 to.
        for one, other in zip(mine.pop("weights", ()), theirs.pop("weights", ()), strict=True):
            assert np.array_equal(np.float32(one), np.float32(other))
    assert found == wanted


def test_a_thousand_rows_on_twenty_thousand_tokens_are_answered_with_every_mask(client: Client) -> None:
    many = [{"name": f"d{i}", "method": "ipo", "threshold": i / 1000} for i in range(1000)]
    columns = {name: np.full(20_000, -1.0, np.float32) for name in ("old_logprobs", "logprobs", "sampling_logprobs")}
    body = frame_bytes({"methods": many}, {**columns, "lengths": np.full(10, 2000)})
    answer = client.post("/v1/evaluate?detail=token", content=body, headers=SAFETENSORS).json()
    assert [row["name"] for row in answer["methods"]] == [row["name"] for row in many]
    assert {len(row["keep_tokens"][9]) for row in answer["methods"]} == {2000}


@pytest.mark.parametrize(
    ("settings", "query", "said"),
    [
        ({"max_evaluate_row_tokens": 5 * len(PRESETS) - 1}, "", f"{len(PRESETS)} rows on 5 tokens is over the limit"),
        ({"evaluate_bytes": 100_000}, "?detail=none", "bytes of memory are needed is over the limit of 100000"),
    ],
)
def test_an_evaluation_over_a_bound_is_413_and_names_the_setting(
    application: Application, settings: dict[str, int], query: str, said: str
) -> None:
    with application(**settings) as client:
        response = client.post(f"/v1/evaluate{query}", content=json_bytes(), headers=JSON)
    assert response.status_code == 413
    assert said in response.json()["detail"]
    assert f"OFFPOLICY_{next(iter(settings)).upper()}" in response.json()["detail"]


@pytest.mark.parametrize("detail", ["none", "sequence", "token"])
def test_what_an_evaluation_reserved_is_given_back(client: Client, detail: str) -> None:
    evaluating = client.app.state.services.pipeline.evaluating
    assert client.post(f"/v1/evaluate?detail={detail}", content=json_bytes(), headers=JSON).status_code == 200
    assert evaluating.used == 0
