"""tinker-cookbook's adapter with its own training step; the service's clients are not here, so they answer at once."""

import asyncio
from types import SimpleNamespace
from typing import Any

import torch
from offpolicy_monitor.client.adapters.tinker_cookbook import watch


async def awaited(value: Any) -> Any:
    return value


class Client:
    """Tinker's training client: log-probs of its own for each datum, and an optimizer that does nothing."""

    def __init__(self, pi: list[torch.Tensor], real: Any) -> None:
        self.pi, self.tinker, self.sampler = list(pi), real("tinker"), object()

    def forward_backward(self, data: list[Any], **named: Any) -> Any:
        taken, self.pi = self.pi[: len(data)], self.pi[len(data) :]
        outputs = [{"logprobs": self.tinker.TensorData.from_torch(values)} for values in taken]
        return awaited(SimpleNamespace(loss_fn_outputs=outputs, metrics={}))

    def optim_step(self, params: Any) -> Any:
        return awaited(SimpleNamespace(metrics={}))

    async def save_weights_and_get_sampling_client(self, **named: Any) -> Any:
        return self.sampler


def datums(real: Any, tokens: dict[str, torch.Tensor]) -> list[Any]:
    tinker = real("tinker")
    inputs = {
        "logprobs": tokens["sampling_logprobs"],
        "advantages": tokens["advantages"],
        "mask": tokens["mask"].float(),
    }
    return [
        tinker.Datum(
            model_input=tinker.ModelInput.from_ints([1] * 6),
            loss_fn_inputs={name: tinker.TensorData.from_torch(array[row]) for name, array in inputs.items()},
        )
        for row in range(4)
    ]


async def stepped(train: Any, client: Client, data: list[Any]) -> dict[str, Any]:
    """The end of `do_train_step_and_get_sampling_client`, for batch 6."""
    pi = await train.train_step(data, client, 1e-5, 2, "importance_sampling")
    manager = SimpleNamespace(should_save_periodic=lambda step: False)
    sampler, metrics = await train.compute_full_batch_metrics_and_get_sampling_client(
        client, manager, 7, data, pi, False
    )
    assert sampler is client.sampler
    return dict(metrics)


def test_its_steps_have_the_metrics_that_they_had_and_post_what_they_are_of(
    real: Any, monitor: Any, tokens: Any, monkeypatch: Any
) -> None:
    train = real("tinker_cookbook.rl.train")
    pi, data = tokens["old_logprobs"] - 0.125, datums(real, tokens)
    plain = asyncio.run(stepped(train, Client(pi, real), data))
    for name in ("train_step", "compute_full_batch_metrics_and_get_sampling_client"):
        monkeypatch.setattr(train, name, getattr(train, name))
    watch(train, monitor)
    seen = asyncio.run(stepped(train, Client(pi, real), data))
    assert seen == plain
    assert [(call["step"], call["minibatch"], call["minibatches"]) for call in monitor.calls] == [(6, 0, 2), (6, 1, 2)]
    entered = {**tokens, "logprobs": pi}
    for name in ("sampling_logprobs", "logprobs", "advantages", "mask"):
        assert torch.equal(torch.stack([row for call in monitor.calls for row in call[name]]), entered[name]), name
    mask = tokens["mask"]
    gap = (tokens["sampling_logprobs"] - pi)[mask].mean().item()
    assert abs(seen["optim/kl_sample_train_v1"] - gap) < 1e-6
