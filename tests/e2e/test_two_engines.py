"""Two engines sample for one trainer of four gradient steps a rollout: one fault is told once, and its end once.

Through a real service, which posts to a webhook of ours.
"""

import json
import math
import random
import urllib.request
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.drift import send
from tests.fixtures.http_stub import Asked, Said, answering
from tests.fixtures.prometheus import wait_for
from tests.fixtures.service import running_service

RUN = "two-engines"
#: Log-ratios of a healthy engine and of one that is stale, nats: k3 is half their square.
HEALTHY, STALE = 0.02, 0.15
SEQUENCES, LENGTH = 16, 32
#: Steps before the fault, with it, and after it.
BEFORE, FAULTY, AFTER = 14, 10, 12
#: Which engine sampled for each gradient step of a rollout.
ALTERNATING, EARLY = ("e0", "e1", "e0", "e1"), ("e1", "e0", "e0", "e0")


def post(url: str, step: int, minibatch: int, engine: str, spread: float) -> dict[str, Any]:
    """A gradient step whose tokens are `spread` apart between engine and trainer, about a mean ratio of 1."""
    source = random.Random(10 * step + minibatch)
    sampling = [source.uniform(-7.0, -0.5) for _ in range(SEQUENCES * LENGTH)]
    centre = -math.log(math.cosh(spread))
    trained = [value + centre + (spread if index % 2 else -spread) for index, value in enumerate(sampling)]
    body = {
        **{
            "step": step,
            "minibatch": minibatch,
            "minibatches": 4,
            "policy_version": step,
            "labels": {"engine": engine},
        },
        **{"sampling_logprobs": sampling, "old_logprobs": trained, "logprobs": trained},
        **{"lengths": [LENGTH] * SEQUENCES, "policy_versions": [step] * SEQUENCES},
    }
    return send(f"{url}/v1/runs/{RUN}/batches", body)


def train(url: str, engines: Sequence[str], is_stale: Callable[[int, str], bool]) -> list[str]:
    """All steps; the verdict that each gradient step was answered with."""
    return [
        post(url, step, minibatch, engine, STALE if is_stale(step, engine) else HEALTHY)["verdict"]
        for step in range(BEFORE + FAULTY + AFTER)
        for minibatch, engine in enumerate(engines)
    ]


@pytest.mark.parametrize("engines", [ALTERNATING, EARLY], ids=["alternating", "early"])
def test_one_stale_engine_raises_each_alert_once_and_is_told_once_with_its_end(
    tmp_path: Path, engines: Sequence[str]
) -> None:
    told: list[dict[str, Any]] = []

    def take(asked: Asked) -> Said:
        told.append(asked.json)
        return Said()

    with answering(take) as webhook, running_service(tmp_path, OFFPOLICY_WEBHOOK_URL=webhook) as url:
        verdicts = train(url, engines, lambda step, engine: engine == "e1" and BEFORE <= step < BEFORE + FAULTY)
        wait_for(lambda: told and named(told, "active") == named(told, "resolved"))
        with urllib.request.urlopen(f"{url}/v1/alerts?run={RUN}&limit=1000", timeout=5) as answer:
            rows = json.load(answer)["alerts"]
    assert set(Counter((body["state"], body["alert"], body["severity"]) for body in told).values()) == {1}
    assert len(told) <= 4
    assert {body["alert"] for body in told if body["severity"] == "critical"} == {"SyncBroken"}
    assert set(Counter((row["alert"], row["severity"]) for row in rows).values()) == {1}
    assert {row["state"] for row in rows} == {"resolved"} and "ShardOutlier" in {row["alert"] for row in rows}
    [weights] = [row for row in rows if row["alert"] == "SyncBroken"]
    assert weights["message"].endswith(f"before step {BEFORE}, and one shard, engine or GPU has it alone.")
    assert [verdict for verdict, _ in groupby(verdicts)] == ["accept", "warn", "skip", "accept"]


def named(told: Sequence[dict[str, Any]], state: str) -> set[tuple[str, str]]:
    return {(body["alert"], body["severity"]) for body in told if body["state"] == state}
