"""Stand-ins for a Monitor: one keeps what an adapter posts, the other posts it as real bytes to the application."""

from collections.abc import Mapping
from typing import Any
from weakref import WeakSet

import numpy as np

from tests.fixtures.application import SAFETENSORS, Client, frame_bytes

ARRAYS = frozenset({
    "sampling_logprobs", "old_logprobs", "logprobs", "mask", "lengths", "advantages", "policy_versions", "entropy",
})  # fmt: skip


class Recorder:
    """Keeps the calls, and of each end that was said whether it was for the run; strict, so that mistakes surface."""

    strict = True

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []
        self.ends: list[bool] = []
        self.gathering: WeakSet[Any] = WeakSet()

    def log(self, *, step: int, **arguments: Any) -> None:
        self.calls.append({"step": step, **arguments})

    def finish(self, *, for_run: bool = False) -> None:
        for gathering in self.gathering:
            gathering.settle()
        self.ends.append(for_run)

    def before_end(self, gathering: Any) -> None:
        self.gathering.add(gathering)


class Poster(Recorder):
    """Posts each call as one safetensors body, rows packed, and fails on any answer but 200."""

    def __init__(self, client: Client, run: str) -> None:
        super().__init__()
        self.client, self.path = client, f"/v1/runs/{run}"

    def log(self, *, step: int, **arguments: Any) -> None:
        super().log(step=step, **arguments)
        answer = self.client.post(
            f"{self.path}/batches", content=body({"step": step, **arguments}), headers=SAFETENSORS
        )
        assert answer.status_code == 200, answer.text

    def step(self, step: int, minibatch: int | None = None) -> dict[str, Any]:
        """The merged gradient step as the service tells it."""
        which = "" if minibatch is None else f"?minibatch={minibatch}"
        answer: dict[str, Any] = self.client.get(f"{self.path}/steps/{step}{which}").json()
        return answer


def body(arguments: Mapping[str, Any]) -> bytes:
    """The frame of one call."""
    envelope = {name: value for name, value in arguments.items() if name not in ARRAYS and value is not None}
    arrays: dict[str, Any] = {}
    for name in ARRAYS & arguments.keys():
        value = arguments[name]
        if isinstance(value, list):
            arrays["lengths"] = np.array([len(row) for row in value], np.int64)
            arrays[name] = np.concatenate([np.asarray(row) for row in value])
        else:
            arrays[name] = np.asarray(value)
    return frame_bytes(envelope, arrays)
