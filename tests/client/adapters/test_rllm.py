"""rLLM's adapter, driven with backends and a loop that call each other as those of commit 9beb6e0 do."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from offpolicy_monitor.client.adapters.rllm import watched

from tests.client.adapters.recorder import Recorder
from tests.client.adapters.tokens import of, told

# Answers of three and of two, padded to three.
TOKENS = [[2, 3, 4], [12, 13, 14]]
ANSWERS = [[2, 3, 4], [12, 13]]


class Config(dict[str, Any]):
    """A configuration whose parts are read by name or with `get`."""

    __getattr__ = dict.__getitem__


def state(step: int, version: int = 0) -> SimpleNamespace:
    """TrainerState: what the backends read and write of it."""
    return SimpleNamespace(global_step=step, weight_version=version, extra_info={}, backend_batch=None)


class Backend:
    """BackendProtocol."""

    def __init__(self, asynchronous: bool = False, bypass: bool = False) -> None:
        self.config = Config(rllm=Config(async_training={"enable": asynchronous}))
        self.algorithm_config = SimpleNamespace(rollout_correction=SimpleNamespace(bypass_mode=bypass))
        self.updates = 0

    async def update_policy(self, trainer_state: Any, **kwargs: Any) -> None:
        self.updates += 1


class VerlBackend(Backend):
    """Its batch is a DataProto; a row that pads it has nothing under its mask."""

    async def process_backend_batch(self, trainer_state: Any, **kwargs: Any) -> None:
        fields = {"rollout_log_probs": "sampling_logprobs", "old_log_probs": "old_logprobs", "advantages": "advantages"}
        tensors = {name: torch.tensor([of(array, row) for row in TOKENS]) for name, array in fields.items()}
        mask = torch.tensor([[1, 1, 1], [1, 1, 0]])
        trainer_state.backend_batch = SimpleNamespace(batch={**tensors, "response_mask": mask}, non_tensor_batch={})


def datum(tokens: list[int]) -> SimpleNamespace:
    values = {"logprobs": of("sampling_logprobs", tokens), "advantages": of("advantages", tokens)}
    arrays = values | {"mask": [1.0] * len(tokens)}
    inputs = {name: SimpleNamespace(to_torch=lambda array=array: torch.tensor(array)) for name, array in arrays.items()}
    return SimpleNamespace(loss_fn_inputs=inputs)


class TinkerBackend(Backend):
    """Its batch is a list of datums; log-probs are in the state's `extra_info`."""

    async def process_backend_batch(self, trainer_state: Any, **kwargs: Any) -> None:
        trainer_state.backend_batch = [datum(tokens) for tokens in ANSWERS]
        trainer_state.extra_info["training_logprobs"] = [torch.tensor(of("logprobs", tokens)) for tokens in ANSWERS]


class FireworksBackend(TinkerBackend):
    """Its loss is computed elsewhere, and gives no log-probs."""

    async def process_backend_batch(self, trainer_state: Any, **kwargs: Any) -> None:
        await super().process_backend_batch(trainer_state)
        trainer_state.extra_info.pop("training_logprobs")


def trained(backend: Any, trainer_state: Any, passes: int = 1) -> Any:
    """One step of the trainer's loop."""

    async def step() -> None:
        for _ in range(passes):
            await backend.process_backend_batch(trainer_state)
        await backend.update_policy(trainer_state=trainer_state)

    asyncio.run(step())
    return backend


CASES = [(VerlBackend, ["sampling_logprobs", "old_logprobs"]), (TinkerBackend, ["sampling_logprobs", "logprobs"])]


@pytest.mark.parametrize(("backend", "names"), CASES)
def test_every_array_has_the_answers_tokens_under_the_mask(backend: type, names: list[str]) -> None:
    recorder = Recorder()
    made: Any = watched(backend, lambda: recorder)
    assert trained(made(), state(5)).updates == 1 and made.__name__ == backend.__name__
    (call,) = recorder.calls
    for name in [*names, "advantages"]:
        assert told(call, name) == [of(name, answer) for answer in ANSWERS], name
    assert (call["step"], call["shard"], call["shards"], call["policy_version"]) == (5, 0, 1, 4)


@pytest.mark.parametrize("backend", [VerlBackend, TinkerBackend])
def test_asynchronous_training_counts_the_versions_of_its_state(backend: type) -> None:
    recorder = Recorder()
    made: Any = watched(backend, lambda: recorder)
    trained(made(asynchronous=True), state(9, version=3))
    assert [(call["step"], call["policy_version"]) for call in recorder.calls] == [(9, 3)]


def test_the_passes_of_one_gradient_step_are_one_shard_and_those_without_one_are_forgotten() -> None:
    recorder = Recorder()
    backend: Any = watched(TinkerBackend, lambda: recorder)()
    asyncio.run(backend.process_backend_batch(state(1)))
    trained(backend, state(2), passes=2)
    assert [(call["step"], len(call["logprobs"])) for call in recorder.calls] == [(2, 4)]


@pytest.mark.parametrize(("backend", "settings"), [(VerlBackend, {"bypass": True}), (FireworksBackend, {})])
def test_a_backend_that_has_one_log_prob_alone_is_told_of_once(
    backend: type, settings: dict[str, bool], caplog: pytest.LogCaptureFixture
) -> None:
    recorder = Recorder()
    made: Any = watched(backend, lambda: recorder)(**settings)
    for step in range(1, 5):
        trained(made, state(step))
    assert recorder.calls == []
    assert [record.getMessage().split(" has seen")[0] for record in caplog.records] == ["rLLM's backend"]


def test_a_monitor_that_cannot_be_made_ends_no_training() -> None:
    def refused() -> Any:
        raise RuntimeError("no address")

    backend: Any = watched(TinkerBackend, refused)()
    assert trained(backend, state(1)).updates == 1
