"""Bodies of unknown length: what they hold while they arrive, and what one that brings nothing does to others."""

import asyncio
from collections.abc import AsyncIterator

import httpx
import numpy as np
import pytest
import zstandard
from offpolicy_monitor.pipeline.buffers import SMALLEST

from tests.fixtures.application import JSON, SAFETENSORS, Application, Client, frame_bytes, json_bytes

URL = "/v1/runs/r1/batches"
ZSTD = {**JSON, "Content-Encoding": "zstd"}
MEBIBYTE = 1 << 20


async def pieces(*parts: bytes, then: asyncio.Event | None = None) -> AsyncIterator[bytes]:
    """A chunked body; with an event it does not end before the event is set."""
    for part in parts:
        yield part
    if then is not None:
        await then.wait()


def large_frame(tokens: int) -> bytes:
    """A good body of eight bytes per token."""
    arrays = {name: np.full(tokens, -1.0, np.float32) for name in ("old_logprobs", "logprobs")}
    return frame_bytes({"step": 1}, {"lengths": [tokens], **arrays})


def in_flight(client: Client) -> tuple[int, int]:
    """Bytes reserved for bodies, and for decoding them."""
    pipeline = client.app.state.services.pipeline
    return pipeline.budget.used, pipeline.decoding.used


def test_an_idle_connection_of_unknown_length_delays_nobody(application: Application) -> None:
    with application(admission_timeout=0.5) as client:

        async def scenario() -> tuple[httpx.Response, list[httpx.Response], tuple[int, int]]:
            end = asyncio.Event()
            idle = asyncio.create_task(client.http.post(URL, content=pieces(b"\x28", then=end), headers=ZSTD))
            while in_flight(client) == (0, 0):
                await asyncio.sleep(0)
            held = in_flight(client)
            bodies = [zstandard.compress(json_bytes(step=step)) for step in range(16)]
            posts = [client.http.post(URL, content=pieces(body[:9], body[9:]), headers=ZSTD) for body in bodies]
            answers = await asyncio.gather(*posts)
            end.set()
            return await idle, answers, held

        idle, answers, held = client.run(scenario())
        assert held == (SMALLEST, 0)
        assert [answer.status_code for answer in answers] == [200] * 16
        assert idle.status_code == 400
        assert in_flight(client) == (0, 0)


def test_sixteen_connections_that_declare_much_and_send_nothing_cost_little_and_delay_nobody(
    application: Application,
) -> None:
    declared = {**SAFETENSORS, "Content-Length": str(256 * MEBIBYTE)}
    large = large_frame(1_000_000)
    with application(admission_timeout=1) as client:

        async def scenario() -> tuple[list[httpx.Response], tuple[int, int]]:
            end = asyncio.Event()
            idle = [
                asyncio.create_task(client.http.post(URL, content=pieces(b"[", then=end), headers=declared))
                for _ in range(16)
            ]
            while in_flight(client)[0] < 16 * SMALLEST:
                await asyncio.sleep(0)
            held = in_flight(client)
            answers = [await client.http.post(URL, content=json_bytes(), headers=JSON)]
            answers.append(await client.http.post(URL, content=large, headers=SAFETENSORS))
            end.set()
            await asyncio.gather(*idle)
            return answers, held

        answers, held = client.run(scenario())
        assert held == (16 * SMALLEST, 0)
        assert [answer.status_code for answer in answers] == [200, 200]
        assert in_flight(client) == (0, 0)


def test_bodies_that_stop_after_their_beginning_lose_their_room_to_those_that_wait(application: Application) -> None:
    """Sixteen times what has come is held: a sixteenth of the body, and all of its room is taken."""
    declared = {**JSON, "Content-Length": str(8 * MEBIBYTE)}
    with application(inflight_bytes=16 * MEBIBYTE, admission_timeout=20, body_idle_timeout=60) as client:

        async def scenario() -> tuple[list[httpx.Response], httpx.Response, httpx.Response, int]:
            beginning = b" " * MEBIBYTE
            stalled = [
                asyncio.create_task(
                    client.http.post(URL, content=pieces(beginning, then=asyncio.Event()), headers=declared)
                )
                for _ in range(2)
            ]
            while in_flight(client)[0] < 8 * MEBIBYTE + SMALLEST:
                await asyncio.sleep(0)
            small = await client.http.post(URL, content=json_bytes(), headers=JSON)
            held = in_flight(client)[0]
            large = await client.http.post(URL, content=large_frame(1_000_000), headers=SAFETENSORS)
            return await asyncio.gather(*stalled), small, large, held

        stalled, small, large, held = client.run(scenario())
        assert (small.status_code, large.status_code) == (200, 200)
        assert held >= 8 * MEBIBYTE  # the small one did not have to wait for it
        assert {answer.status_code for answer in stalled} == {408}
        assert all("OFFPOLICY_INFLIGHT_BYTES" in answer.json()["detail"] for answer in stalled)
        assert in_flight(client) == (0, 0)


def test_a_body_that_arrives_slowly_but_in_time_keeps_its_room(application: Application) -> None:
    """One that waits is told to come back; it does not throw out who will be done in time."""
    body = large_frame(700_000)
    step = len(body) // 60

    async def slowly() -> AsyncIterator[bytes]:
        for start in range(0, len(body), step):
            yield body[start : start + step]
            await asyncio.sleep(0.1)

    with application(inflight_bytes=6 * MEBIBYTE, admission_timeout=1, body_timeout=60) as client:

        async def scenario() -> tuple[httpx.Response, httpx.Response]:
            headers = {**SAFETENSORS, "Content-Length": str(len(body))}
            slow = asyncio.create_task(client.http.post(URL, content=slowly(), headers=headers))
            while in_flight(client)[0] < 5 * MEBIBYTE:
                await asyncio.sleep(0.01)
            waiting = await client.http.post("/v1/runs/r2/batches", content=body, headers=SAFETENSORS)
            return await slow, waiting

        slow, waiting = client.run(scenario())
    assert (slow.status_code, waiting.status_code) == (200, 503)


@pytest.mark.parametrize("headers", [ZSTD, {**JSON, "Content-Length": "100"}], ids=["chunked", "declared"])
def test_a_body_that_brings_nothing_more_is_408_and_frees_what_it_held(
    application: Application, headers: dict[str, str]
) -> None:
    with application(body_idle_timeout=0.05) as client:

        async def scenario() -> httpx.Response:
            return await client.http.post(URL, content=pieces(b"{", then=asyncio.Event()), headers=headers)

        response = client.run(scenario())
        assert response.status_code == 408
        assert "OFFPOLICY_BODY_IDLE_TIMEOUT" in response.json()["detail"]
        assert in_flight(client) == (0, 0)


def test_a_body_that_trickles_is_408_at_the_deadline_of_the_whole(application: Application) -> None:
    async def trickle() -> AsyncIterator[bytes]:
        while True:
            yield b" "
            await asyncio.sleep(0.01)

    with application(body_timeout=0.1, body_idle_timeout=5) as client:
        response = client.run(client.http.post(URL, content=trickle(), headers=JSON))
    assert response.status_code == 408
    assert "OFFPOLICY_BODY_TIMEOUT" in response.json()["detail"]


def test_a_body_of_unknown_length_may_be_larger_than_the_budget_and_waiting_for_room_is_not_idleness(
    application: Application,
) -> None:
    body = large_frame(500_000)
    parts = [body[start : start + 65_536] for start in range(0, len(body), 65_536)]
    with application(inflight_bytes=2 * MEBIBYTE, body_idle_timeout=0.5) as client:

        async def scenario() -> list[httpx.Response]:
            posts = [
                client.http.post(f"/v1/runs/r{run}/batches", content=pieces(*parts), headers=SAFETENSORS)
                for run in range(4)
            ]
            return await asyncio.gather(*posts)

        assert [answer.status_code for answer in client.run(scenario())] == [200] * 4
        assert in_flight(client) == (0, 0)


def test_decoding_waits_for_its_own_budget_and_then_is_503(application: Application) -> None:
    with application(decoding_bytes=10_000, admission_timeout=0.05) as client:

        async def scenario() -> tuple[httpx.Response, httpx.Response]:
            async with client.app.state.services.pipeline.decoding.reserve(10_000):
                parsed = await client.http.post(URL, content=json_bytes(), headers=JSON)
            return parsed, await client.http.post(URL, content=json_bytes(), headers=JSON)

        busy, alone = client.run(scenario())
    assert (busy.status_code, busy.headers["retry-after"]) == (503, "1")
    assert "OFFPOLICY_DECODING_BYTES" in busy.json()["detail"]
    assert alone.status_code == 200


@pytest.mark.parametrize("headers", [JSON, ZSTD], ids=["plain", "compressed"])
def test_json_that_would_take_more_than_the_whole_budget_is_413(
    application: Application, headers: dict[str, str]
) -> None:
    body = b'{"step":1,"x":[' + b"[]," * 10_000 + b"[]]}"
    with application(decoding_bytes=MEBIBYTE) as client:
        content = zstandard.compress(body) if headers is ZSTD else body
        response = client.post(URL, content=content, headers=headers)
        assert response.status_code == 413
        assert "OFFPOLICY_DECODING_BYTES" in response.json()["detail"]
        assert client.post(URL, content=json_bytes(), headers=JSON).status_code == 200
        assert in_flight(client) == (0, 0)
