"""Runs as a page meets them: healthy, drifting, without one of the arrays, with names and labels that try to be markup.

Every step is small and posted as any trainer would; what is wrong with a run is in its numbers alone.
"""

import json
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from offpolicy_monitor.wire import frame

SEQUENCES, LENGTH = 8, 24
#: Step from which the drifting run drifts.
ONSET: Final = 32
LONGEST_NAME: Final = "a-run-with-a-very-long-name-" + "0123456789" * 10
MARKUP: Final = "<img src=x onerror=alert(1)><b>bold</b>&amp;\"'"

Noise = Callable[[int], float]


@dataclass(frozen=True)
class Planted:
    """A run: the noise of its engine by step, what it sends, its labels."""

    name: str
    steps: int = 48
    noise: Noise = lambda step: 0.01
    moved: float = 0.05
    without: Sequence[str] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    ids: str = ""
    finished: bool = False


HEALTHY: Final = Planted("healthy", labels={"engine": "vllm"})
DRIFTING: Final = Planted("drifting", noise=lambda step: 0.01 if step < ONSET else 0.35)
WITHOUT_OLD: Final = Planted("without-pi-old", without=("old_logprobs",))
WITHOUT_ADVANTAGES: Final = Planted("without-advantages", without=("advantages",))
LONG: Final = Planted(LONGEST_NAME, steps=8)
TAGGED: Final = Planted("markup", steps=8, labels={"note": MARKUP}, ids=MARKUP)
YOUNG: Final = Planted("young", steps=2)
OVER: Final = Planted("over", steps=8, finished=True)
ALL: Final = (HEALTHY, DRIFTING, WITHOUT_OLD, WITHOUT_ADVANTAGES, LONG, TAGGED, YOUNG, OVER)


def post(url: str, run: str, step: int, planted: Planted, minibatches: int = 1) -> None:
    """One step of a run."""
    arrays = step_arrays(planted, step)
    envelope: dict[str, Any] = {"step": step, "policy_version": step, "labels": dict(planted.labels), "minibatches": 1}
    if planted.ids:
        envelope["sequence_ids"] = [f"{planted.ids}{index}" for index in range(SEQUENCES)]
    body = b"".join(bytes(part) for part in frame.encode(envelope, arrays, ()))
    ask(url, f"/v1/runs/{run}/batches?detail=none", body, "application/vnd.safetensors")


def step_arrays(planted: Planted, step: int) -> dict[str, NDArray[Any]]:
    """Log-probs of a step, the same for the same step."""
    random = np.random.default_rng(step)
    tokens = SEQUENCES * LENGTH
    old = np.minimum(-0.01, random.normal(-1.2, 0.8, tokens))
    arrays = {
        "sampling_logprobs": np.minimum(0.0, old + random.normal(0.0, planted.noise(step), tokens)),
        "old_logprobs": old,
        "logprobs": np.minimum(0.0, old + random.normal(0.0, planted.moved, tokens)),
        "advantages": random.normal(0.0, 1.0, tokens),
    }
    found: dict[str, NDArray[Any]] = {name: values.astype(np.float32) for name, values in arrays.items()}
    found = {name: values for name, values in found.items() if name not in planted.without}
    return {**found, "lengths": np.full(SEQUENCES, LENGTH, np.int64)}


def plant(url: str, runs: Sequence[Planted] = ALL) -> None:
    """Post every step of the runs."""
    for run in runs:
        for step in range(run.steps):
            post(url, run.name, step, run)
        changes: dict[str, Any] = {"labels": dict(run.labels)} | ({"finished": True} if run.finished else {})
        ask(url, f"/v1/runs/{run.name}", json.dumps(changes).encode(), "application/json", "PATCH")


def ask(url: str, path: str, body: bytes | None = None, media_type: str = "", method: str | None = None) -> Any:
    """The answer of the API as JSON; raises where it refuses."""
    headers = {"Content-Type": media_type} if body is not None else {}
    request = urllib.request.Request(url + path, body, headers, method=method)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read() or b"null")
