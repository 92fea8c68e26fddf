"""Large evaluations against a real process: what they take of memory, and how soon they end when it is stopped."""

import http.client
import json
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from offpolicy_monitor.server.process import END_WITHIN

from tests.fixtures.application import SAFETENSORS, frame_bytes
from tests.fixtures.live import Service, serving

#: Seconds; what the process promises, whatever works in it, and as long again for a machine that is busy otherwise.
ENDS_WITHIN = 2 * END_WITHIN
#: It is 180 to 260, by how much allocators keep: masks and weights 24, a block of tokens and what is made of it 110.
#: With the answer as a whole it would be 560 to 650.
MOST_MEMORY = 400 << 20  # bytes
#: Each row alone cuts by all tokens of the body. Together they take some seconds, in slices of hundredths of one.
CUTS = [{"name": f"m{index}", "method": "m2po", "threshold": 1e-6 * (index + 1)} for index in range(400)]


def body(tokens: int, methods: list[dict[str, Any]], sequences: int = 100) -> bytes:
    random = np.random.default_rng(1)
    base = -random.exponential(0.7, tokens)
    names = ("sampling_logprobs", "old_logprobs", "logprobs")
    columns = {name: (base + 0.05 * random.standard_normal(tokens)).astype(np.float32) for name in names}
    return frame_bytes({"methods": methods}, {**columns, "lengths": np.full(sequences, tokens // sequences)})


def post(port: int, path: str, content: bytes) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    try:
        connection.request("POST", path, content, SAFETENSORS)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def begun(service: Service) -> None:
    """Return once a body has been read, so that only its evaluation is left."""
    while 'stage_seconds_count{stage="decode"} 1.0' not in get(service.port, "/metrics"):
        time.sleep(0.02)


def get(port: int, path: str) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    try:
        connection.request("GET", path)
        return connection.getresponse().read().decode()
    finally:
        connection.close()


def test_rows_by_the_hundred_on_a_large_body_take_little_memory(tmp_path: Path) -> None:
    rows = [{"name": f"t{index}", "method": "truncate", "upper": 1 + index / 50} for index in range(40)]
    rows += [{"name": f"m{index}", "method": "mask", "upper": 1 + index / 50} for index in range(60)]
    with serving(tmp_path) as service:
        assert post(service.port, "/v1/evaluate?detail=token", body(2000, rows))[0] == 200
        before = service.at_rest()
        status, answer = post(service.port, "/v1/evaluate?detail=token", body(130_000, rows))
        assert status == 200
        assert service.peak() - before < MOST_MEMORY
        before = service.at_rest()
        assert post(service.port, "/v1/evaluate", body(130_000, CUTS[:100]))[0] == 200
        assert service.peak() - before < MOST_MEMORY
    methods = orjson.loads(answer)["methods"]  # thirteen million decisions
    assert [len(row["keep_tokens"]) for row in methods] == [100] * 100
    assert sum("weights" in row for row in methods) == 40


def test_a_long_evaluation_ends_with_503_when_the_service_is_stopped(tmp_path: Path) -> None:
    answers: list[tuple[int, bytes]] = []
    with serving(tmp_path) as service:
        content = body(600_000, CUTS)
        asking = threading.Thread(target=lambda: answers.append(post(service.port, "/v1/evaluate", content)))
        asking.start()
        begun(service)
        service.process.terminate()
        assert service.process.wait(ENDS_WITHIN) == 0
        asking.join()
    [(status, answer)] = answers
    assert status == 503 and json.loads(answer)["type"].endswith(":stopping")
