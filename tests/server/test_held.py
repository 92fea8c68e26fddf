"""What is reserved for a batch while it waits for the device is what is held of it beside its body."""

import asyncio
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard
from offpolicy_monitor.batch import RaggedBatch
from offpolicy_monitor.measure import Measurer
from offpolicy_monitor.server.app import create_app
from offpolicy_monitor.settings import Settings
from offpolicy_monitor.summary.step import StepSummary

from tests.fixtures.application import JSON, SAFETENSORS, Client, database, frame_bytes, good_frame, json_bytes, running

URL = "/v1/runs/r1/batches"
TOKENS = 80_000
FLOATS = np.full(TOKENS, -1.0, np.float32)
MASK = np.arange(TOKENS) % 2 == 0
#: Objects that a message is made of, beside its numbers.
OBJECTS = 8192


class Waiting(Measurer):
    """A device that does not begin before it is let."""

    def __init__(self) -> None:
        super().__init__("cpu")
        self.begun, self.let = threading.Event(), threading.Event()

    def warm_up(self) -> None:
        """Nothing."""

    def measure(self, batch: RaggedBatch, *args: Any, **options: Any) -> StepSummary:
        self.batch = weakref.ref(batch)
        self.begun.set()
        assert self.let.wait(30)
        return super().measure(batch, *args, **options)


@pytest.fixture
def device() -> Waiting:
    return Waiting()


@pytest.fixture
def client(tmp_path: Path, migrated_copy: None, device: Waiting) -> Iterator[Client]:
    settings = Settings(database_url=database(tmp_path), measure_threads=1)
    with running(create_app(settings, lambda _: device)) as client:
        yield client


def frame_of(**arrays: Any) -> bytes:
    return frame_bytes({"step": 1}, {"lengths": [TOKENS], "old_logprobs": FLOATS, "logprobs": FLOATS, **arrays})


PLAIN = frame_of()
JSON_BODY = json_bytes(
    lengths=[TOKENS], sampling_logprobs=None, old_logprobs=[-1] * TOKENS, logprobs=[-1] * TOKENS, advantages=None
)
BODIES = {
    "a frame is read where it is": (PLAIN, SAFETENSORS, 0),
    "a mask leaves two columns and positions of every second token": (frame_of(mask=MASK), SAFETENSORS, TOKENS * 8),
    "narrow integers become wide ones": (frame_of(turns=np.zeros(TOKENS, np.int8)), SAFETENSORS, TOKENS * 8),
    "a compressed frame is kept decompressed": (
        *(zstandard.compress(PLAIN), {**SAFETENSORS, "Content-Encoding": "zstd"}),
        len(PLAIN),
    ),
    "numbers of JSON become arrays": (JSON_BODY, JSON, TOKENS * 8),
}


@pytest.mark.parametrize("name", BODIES)
def test_while_a_batch_waits_what_it_holds_is_reserved(client: Client, device: Waiting, name: str) -> None:
    body, headers, held = BODIES[name]
    decoding = client.app.state.services.pipeline.decoding

    async def scenario() -> tuple[int, int]:
        post = asyncio.create_task(client.http.post(URL, content=body, headers=headers))
        await asyncio.to_thread(device.begun.wait, 30)
        reserved = decoding.used
        device.let.set()
        return reserved, (await post).status_code

    reserved, status = client.run(scenario())
    assert status == 200
    assert held <= reserved <= held + (OBJECTS if held else 0)
    assert decoding.used == 0


@pytest.mark.parametrize("body", [frame_of(mask=MASK), good_frame()], ids=["large", "small"])
def test_while_a_batch_waits_for_the_database_its_tokens_are_gone(client: Client, device: Waiting, body: bytes) -> None:
    pipeline = client.app.state.services.pipeline
    hung = threading.Event()
    device.let.set()

    async def scenario() -> tuple[int, bool, int]:
        busy = asyncio.create_task(pipeline.writer.call(lambda: hung.wait(30)))
        post = asyncio.create_task(client.http.post(URL, content=body, headers=SAFETENSORS))
        await asyncio.to_thread(device.begun.wait, 30)
        while device.batch() is not None and not post.done():
            await asyncio.sleep(0.001)
        reserved, waits = pipeline.decoding.used, not post.done()
        hung.set()
        await busy
        return reserved, waits, (await post).status_code

    assert client.run(scenario()) == (0, True, 200)


def test_a_small_frame_is_not_read_before_it_is_measured(client: Client, device: Waiting) -> None:
    async def scenario() -> tuple[bool, int, list[int]]:
        first = asyncio.create_task(client.http.post(URL, content=good_frame(), headers=SAFETENSORS))
        await asyncio.to_thread(device.begun.wait, 30)
        second = asyncio.create_task(client.http.post(URL, content=good_frame()[:-1], headers=SAFETENSORS))
        await asyncio.wait([second], timeout=0.1)
        waits, reserved = not second.done(), client.app.state.services.pipeline.decoding.used
        device.let.set()
        return waits, reserved, [answer.status_code for answer in await asyncio.gather(first, second)]

    assert client.run(scenario()) == (True, 0, [200, 400])


class WaitingForLarge(Waiting):
    """One that begins small batches at once."""

    def measure(self, batch: RaggedBatch, *args: Any, **options: Any) -> StepSummary:
        if batch.tokens == TOKENS:
            return super().measure(batch, *args, **options)
        return Measurer.measure(self, batch, *args, **options)


def test_small_shards_are_stored_while_a_large_one_is_being_measured(tmp_path: Path, migrated_copy: None) -> None:
    device = WaitingForLarge()

    async def scenario(client: Client) -> tuple[list[int], bool, int]:
        large = asyncio.create_task(client.http.post(URL, content=PLAIN, headers=SAFETENSORS))
        await asyncio.to_thread(device.begun.wait, 30)
        small = [await client.http.post("/v1/runs/r2/batches", content=good_frame(), headers=SAFETENSORS)]
        small += [await client.http.post("/v1/runs/r3/batches", content=json_bytes(), headers=JSON)]
        waits = not large.done()
        device.let.set()
        return [answer.status_code for answer in small], waits, (await large).status_code

    with running(create_app(Settings(database_url=database(tmp_path)), lambda _: device)) as client:
        assert client.run(scenario(client)) == ([200, 200], True, 200)
