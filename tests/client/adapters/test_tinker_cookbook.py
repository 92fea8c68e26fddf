"""tinker-cookbook's adapter, driven with functions of the names and arguments that release 0.6.1 has."""

import asyncio
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from offpolicy_monitor.client.adapters.tinker_cookbook import SPLIT, watch

from tests.client.adapters.recorder import Recorder
from tests.client.adapters.tokens import of, told

# Sequences of four targets, the first of which belongs to the prompt, and one of two.
TOKENS = [[0, 1, 2, 3], [10, 11], [20, 21, 22, 23]]
ANSWERS = [row[1:] for row in TOKENS]
NAMES = ["sampling_logprobs", "logprobs", "advantages"]


def datum(tokens: list[int]) -> SimpleNamespace:
    values = {"logprobs": of("sampling_logprobs", tokens), "advantages": of("advantages", tokens)}
    arrays = values | {"mask": [0.0] + [1.0] * (len(tokens) - 1)}
    inputs = {name: SimpleNamespace(to_torch=lambda array=array: torch.tensor(array)) for name, array in arrays.items()}
    return SimpleNamespace(loss_fn_inputs=inputs)


async def train_step(data_D: list[Any], training_client: Any, learning_rate: float, num_substeps: int) -> list[Any]:
    return [torch.tensor(of("logprobs", tokens)) for tokens in TOKENS[: len(data_D)]]


async def compute_full_batch_metrics_and_get_sampling_client(
    training_client: Any, checkpoint_mgr: Any, i_batch: int, data_D: Any, training_logprobs_D: Any, **named: Any
) -> dict[str, Any]:
    return {"checkpoint": i_batch, "data": len(data_D), "named": sorted(named)}


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Any:
    """tinker_cookbook.rl.train."""
    functions = (train_step, compute_full_batch_metrics_and_get_sampling_client)
    made: Any = ModuleType("tinker_cookbook.rl.train")
    for function in functions:
        setattr(made, function.__name__, function)
    helpers: Any = ModuleType(SPLIT)
    helpers.split_list = lambda items, parts: [items[part::parts] for part in range(parts)]
    for name in ("tinker_cookbook", "tinker_cookbook.utils", SPLIT):
        monkeypatch.setitem(sys.modules, name, helpers if name == SPLIT else ModuleType(name))
    return made


def trained(module: Any, batch: int, substeps: int = 1, streams: bool = False, count: int = 3) -> dict[str, Any]:
    """One training step's own result."""

    async def step() -> dict[str, Any]:
        data = [datum(tokens) for tokens in TOKENS[:count]]
        pi = await module.train_step(list(data) if streams else data, None, 1e-5, num_substeps=substeps)
        ends = getattr(module, compute_full_batch_metrics_and_get_sampling_client.__name__)
        result: dict[str, Any] = await ends(None, None, batch + 1, data, pi, do_compute_post_kl=False)
        return result

    return asyncio.run(step())


@pytest.mark.parametrize("name", NAMES)
def test_every_array_has_what_was_sampled_under_the_mask(module: Any, name: str) -> None:
    recorder = Recorder()
    watch(module, recorder)
    trained(module, 4)
    (call,) = recorder.calls
    assert told(call, name) == [of(name, answer) for answer in ANSWERS] and "old_logprobs" not in call
    assert (call["step"], call["minibatch"], call["policy_version"]) == (4, 0, 4)


def test_a_step_returns_what_it_returned_unwatched(module: Any) -> None:
    plain = trained(module, 4)
    watch(module, Recorder())
    assert trained(module, 4) == plain == {"checkpoint": 5, "data": 3, "named": ["do_compute_post_kl"]}


def test_each_optimizer_step_has_the_data_that_it_was_given(module: Any) -> None:
    recorder = Recorder()
    watch(module, recorder)
    trained(module, 7, substeps=2)
    trained(module, 8, substeps=2, count=1)
    numbers = [(call["step"], call["minibatch"], call["minibatches"]) for call in recorder.calls]
    assert numbers == [(7, 0, 2), (7, 1, 2), (8, 0, 1)]
    assert told(recorder.calls[0], "logprobs") == [of("logprobs", ANSWERS[0]), of("logprobs", ANSWERS[2])]


def test_minibatches_that_were_streamed_come_as_one(module: Any) -> None:
    recorder = Recorder()
    watch(module, recorder)
    trained(module, 7, substeps=2, streams=True)
    assert [(call["minibatch"], len(call["logprobs"])) for call in recorder.calls] == [(0, 3)]


def test_a_module_that_does_not_train_is_refused_before_it_starts() -> None:
    with pytest.raises(AttributeError, match="compute_full_batch_metrics"):
        watch(ModuleType("tinker_cookbook.supervised.train"), Recorder())


def test_a_change_of_its_arguments_costs_the_figures_and_no_training(
    module: Any, caplog: pytest.LogCaptureFixture
) -> None:
    class Lenient(Recorder):
        strict = False

    async def ends(*given: Any, **named: Any) -> dict[str, Any]:
        return {"trained": True}

    setattr(module, compute_full_batch_metrics_and_get_sampling_client.__name__, ends)
    recorder = Lenient()
    watch(module, recorder)
    assert trained(module, 0) == {"trained": True} and recorder.calls == []
    assert "posts nothing" in caplog.text


@pytest.mark.parametrize(("steps", "of_what"), [(0, "the whole run"), (2, "the whole run"), (4, "3 training steps")])
def test_an_end_of_a_step_that_was_imported_by_name_before_is_told_once(
    module: Any, caplog: pytest.LogCaptureFixture, steps: int, of_what: str
) -> None:
    recorder = Recorder()
    watch(module, recorder)
    for _ in range(steps):
        asyncio.run(module.train_step([], None, 1e-5, 1))
    for _ in range(2):
        recorder.finish()
    (said,) = caplog.messages
    name = compute_full_batch_metrics_and_get_sampling_client.__name__
    assert said == (
        f"tinker-cookbook's {name} has seen nothing of {of_what}, so nothing is posted: tinker_cookbook.rl.train is not"
        " what trains, or it was imported by name before it was watched"
    )


def test_of_a_run_whose_steps_are_posted_nothing_is_said_at_its_end(
    module: Any, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = Recorder()
    watch(module, recorder)
    trained(module, 0)
    recorder.finish()
    assert recorder.calls and caplog.messages == []
