"""A run that drifts: posts to a real service whose mismatch k3 the test decides."""

import json
import math
import random
import urllib.request
from typing import Any

RUN = "drifting-run"
HEALTHY, DRIFTED = 0.01, 0.26
TOKENS, SEQUENCES = 512, 8


def post(url: str, step: int, spread: float) -> dict[str, Any]:
    """One step whose log-ratios are half `spread` and half minus it, about a mean ratio of 1."""
    source = random.Random(step)
    sampling = [source.uniform(-7.0, -4.0) for _ in range(TOKENS)]
    centre = -math.log(math.cosh(spread))
    trained = [value + centre + (spread if index % 2 else -spread) for index, value in enumerate(sampling)]
    body = {
        "step": step,
        "lengths": [TOKENS // SEQUENCES] * SEQUENCES,
        "sampling_logprobs": sampling,
        "old_logprobs": trained,
        "logprobs": trained,
    }
    return send(f"{url}/v1/runs/{RUN}/batches", body)


def send(url: str, body: dict[str, Any]) -> dict[str, Any]:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        document: dict[str, Any] = json.load(answer)
    return document
