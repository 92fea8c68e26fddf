"""What was refused takes no memory once it is answered, without the help of the collector of garbage."""

import gc
import time
import weakref
from collections.abc import Iterator

import numpy as np
import pytest
from offpolicy_monitor.pipeline.buffers import BufferPool

from tests.fixtures.application import JSON, Application, json_bytes

REFUSED = {
    "not JSON": (400, "runs/r/batches", b"{" * 1000),
    "an envelope at fault": (422, "runs/r/batches", json_bytes(shard=-1)),
    "arrays at fault": (422, "runs/r/batches", json_bytes(lengths=[3])),
    "other content": (409, "runs/r/batches", json_bytes(logprobs=[-1.0, -1.5, -0.125, -2.0, -0.5])),
    "too many bytes of JSON": (413, "runs/r/batches", json_bytes() + b" " * 10_000),
    "an evaluation of nothing": (422, "evaluate", b'{"lengths": [1]}'),
}
#: Seconds.
LEFT_WITHIN = 2.0


class Watched(np.ndarray):
    """Memory that can be asked whether it is there."""


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> Iterator[list["weakref.ref[Watched]"]]:
    """The buffers of bodies, of which none is kept for the next one."""
    known: list[weakref.ref[Watched]] = []

    def take(_pool: BufferPool, size: int) -> memoryview:
        memory = np.empty(size, np.uint8).view(Watched)
        known.append(weakref.ref(memory))
        return memory.data

    monkeypatch.setattr(BufferPool, "take", take)
    monkeypatch.setattr(BufferPool, "give_back", lambda *_: None)
    yield known


@pytest.mark.parametrize("what", REFUSED)
def test_a_refused_body_is_gone_once_it_is_answered(
    application: Application, taken: list["weakref.ref[Watched]"], what: str
) -> None:
    status, to, body = REFUSED[what]
    with application(max_json_bytes=5000) as client:
        assert client.post("/v1/runs/r/batches", content=json_bytes(), headers=JSON).status_code == 200
        gc.disable()
        try:
            answer = client.post(f"/v1/{to}", content=body, headers=JSON)
            # The thread that found the fault has its last line to leave.
            deadline = time.monotonic() + LEFT_WITHIN
            while (left := [memory for memory in taken if memory() is not None]) and time.monotonic() < deadline:
                time.sleep(0.01)
        finally:
            gc.enable()
    assert answer.status_code == status
    assert taken and not left
