"""Unsloth's adapter around a loss that calls its autograd function as Unsloth 2026.10.9 writes it."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from offpolicy_monitor.client.adapters.unsloth import ARGUMENTS, FUNCTION, unpacked, watch

from tests.client.adapters.recorder import Recorder

# The module that Unsloth writes: the function, and the loss that looks it up there.
WRITTEN = f"""
def compute_loss(self, model, inputs, num_items_in_batch=None):
    self._get_per_token_logps_and_entropies(model)
    return {FUNCTION}.apply(*inputs["arguments"], beta=0.0) if inputs["arguments"] else 0.0
"""


class Summing:
    """In the place of the autograd function."""

    @staticmethod
    def apply(new: torch.Tensor, *_: Any, beta: float) -> float:
        return float(new.sum())


def module(function: Any = Summing) -> dict[str, Any]:
    """The names of a written module."""
    names: dict[str, Any] = {FUNCTION: function} if function else {}
    exec(WRITTEN, names)
    return names


class Trainer:
    """The parts of a trainer that the adapter stands around."""

    def __init__(self, written: dict[str, Any]) -> None:
        self.compute_loss = written["compute_loss"].__get__(self)
        self.args = SimpleNamespace(steps_per_generation=1, gradient_accumulation_steps=1)
        self.accelerator = SimpleNamespace(process_index=0, num_processes=1)
        self.state, self.num_iterations, self._step = SimpleNamespace(global_step=0), 2, 0
        self.callbacks: list[Any] = []

    def _get_per_token_logps_and_entropies(self, model: Any) -> tuple[None, None]:
        return None, None

    def add_callback(self, callback: Any) -> None:
        self.callbacks.append(callback)

    def step(self, **inputs: Any) -> Any:
        loss = self.compute_loss(SimpleNamespace(training=True), inputs)
        self._step, self.state.global_step = self._step + 1, self.state.global_step + 1
        return loss


def arguments(seed: int = 1, *, old: bool = True) -> list[Any]:
    """Those of the function: two rows of four packed positions; None where the name is one that is not sent."""
    draws = torch.Generator().manual_seed(seed)
    of = {name: -torch.rand(2, 4, generator=draws) for name in ARGUMENTS if name.endswith("logprobs")}
    of |= {"mask": torch.tensor([[0, 1, 1, 1], [1, 1, 0, 0]]), "advantages": torch.tensor([1.0, -1.0])}
    if not old:
        of |= {"old_logprobs": None}
    return [of.get(name) for name in ARGUMENTS]


def test_every_forward_posts_what_the_compiled_loss_is_given_and_the_loss_is_the_same() -> None:
    trainer = watch(Trainer(module()), recorder := Recorder())
    given = [arguments(seed) for seed in range(3)]
    assert [trainer.step(arguments=one) for one in given] == [float(one[0].sum()) for one in given]
    for call, one in zip(recorder.calls, given, strict=True):
        for name, value in zip(ARGUMENTS, one, strict=True):
            assert not name or torch.equal(call[name], value if name != "mask" else value != 0), name
    keys = [(call["step"], call["minibatch"], call["policy_version"]) for call in recorder.calls]
    assert keys == [(0, 0, 0), (0, 1, 0), (2, 0, 1)]


def test_without_pi_old_mu_and_pi_are_posted() -> None:
    trainer = watch(Trainer(module()), recorder := Recorder())
    trainer.step(arguments=arguments(old=False))
    assert {"sampling_logprobs", "logprobs"} < recorder.calls[0].keys() and "old_logprobs" not in recorder.calls[0]


def test_where_unsloth_takes_the_engines_log_probs_for_pi_old_they_are_posted_as_mu() -> None:
    trainer, given = watch(Trainer(module()), recorder := Recorder()), arguments()
    given[3] = None
    trainer.step(arguments=given, unsloth_rollout_logps_as_old=torch.ones(2, dtype=torch.bool))
    [call] = recorder.calls
    assert torch.equal(call["sampling_logprobs"], given[1]) and "old_logprobs" not in call


def test_two_trainers_of_one_module_post_their_own_losses() -> None:
    names, first, second = module(), Recorder(), Recorder()
    watch(Trainer(names), first)
    watch(Trainer(names), second).step(arguments=arguments())
    assert (len(first.calls), len(second.calls)) == (0, 1)


def test_a_loss_past_the_function_posts_mu_and_pi_old_where_trl_has_its_tokens_and_is_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    trainer = watch(Trainer(module(function=None)), recorder := Recorder())
    # Rows of three tokens, of prompts with two, no and one positions of padding; packed to the left.
    inputs = {
        "completion_mask": torch.tensor([[1, 1, 1], [1, 1, 0], [1, 1, 1]]),
        "prompt_mask": torch.tensor([[0, 0, 1], [1, 1, 1], [0, 1, 1]]),
        "old_per_token_logps": torch.tensor([[1.0, 2, 3, 0, 0], [0, 0, 4, 5, 0], [0, 6, 7, 8, 0]]),
        "sampling_per_token_logps": torch.zeros(3, 3),
    }
    for _ in range(4):
        trainer.step(arguments=None, **inputs)
        trainer.callbacks[0].on_step_end()
    assert recorder.calls[0]["old_logprobs"].tolist() == [[1, 2, 3], [4, 5, 0], [6, 7, 8]]
    assert len(recorder.calls) == 4 and "logprobs" not in recorder.calls[0]
    first, second = (record.getMessage() for record in caplog.records)
    assert "is it Unsloth's?" in first and "seen nothing of 3 training steps, so no logprobs" in second


def test_pi_old_of_rows_that_are_not_packed_stays_as_it_is() -> None:
    sent = {"old_logprobs": torch.ones(1, 2), "mask": torch.ones(1, 2, dtype=torch.bool)}
    assert unpacked(sent, {}) is sent
