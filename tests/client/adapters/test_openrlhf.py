"""OpenRLHF's adapter, driven with a trainer that calls its members as `ActorPPOTrainer` of release 0.11.2 does."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from offpolicy_monitor.client.adapters.openrlhf import watch

from tests.client.adapters.recorder import Recorder
from tests.client.adapters.tokens import of, told

# Four answers; action tensors [1, 3] start at the second token of the sequence: prompt and padding are masked out.
TOKENS = [[1, 2, 3], [11, 12, 13], [21, 22, 23], [31, 32, 33]]
ANSWERS = [[2, 3], [12, 13], [22], [31, 32, 33]]
NAMES = ["sampling_logprobs", "old_logprobs", "logprobs", "advantages"]


class Mesh:
    """A DeviceMesh as the adapter reads it: a rank and a size by dimension."""

    def __init__(self, **ranks: tuple[int, int]) -> None:
        self.ranks = ranks

    def __getitem__(self, name: str) -> SimpleNamespace:
        rank, size = self.ranks[name]
        return SimpleNamespace(get_local_rank=lambda: rank, size=lambda: size)


def experience(index: int, mu: bool = True) -> SimpleNamespace:
    """One micro-batch of one sequence."""
    values = {name: torch.tensor([of(name, TOKENS[index])]) for name in NAMES}
    return SimpleNamespace(
        action_log_probs=values["old_logprobs"],
        rollout_log_probs=values["sampling_logprobs"] if mu else None,
        advantages=values["advantages"],
        action_mask=torch.tensor([[token in ANSWERS[index] for token in TOKENS[index]]]),
        scored=values["logprobs"],
    )


class Trainer:
    """The part of ActorPPOTrainer that the adapter stands around: epochs of micro-batches, one loss in each."""

    def __init__(
        self, accumulated: int = 2, epochs: int = 1, dynamic: list[int] | None = None, mu: bool = True
    ) -> None:
        self.args = SimpleNamespace(
            train=SimpleNamespace(dynamic_batch_enable=dynamic is not None), ckpt=SimpleNamespace(output_dir="/out")
        )
        self.replay_buffer = SimpleNamespace(dynamic_optimizer_step=dynamic)
        mesh = Mesh(dp=(1, 4), sp=(0, 1), tp=(0, 1))
        self.saved: list[str] = []
        self.strategy = SimpleNamespace(
            accumulated_gradient=accumulated,
            ds_device_mesh=mesh,
            save_model=lambda model, tokenizer, output_dir: self.saved.append(output_dir),
        )
        self.epochs, self.mu, self.broadcasts = epochs, mu, 0

    def actor_loss_fn(self, log_probs: Any, old_log_probs: Any, advantages: Any, **named: Any) -> torch.Tensor:
        return -((log_probs - old_log_probs).exp() * advantages * named["action_mask"]).sum()

    def training_step(self, experience: Any, kl_ctl: float, step: int, loss_batch_info: Any = None) -> dict[str, Any]:
        # Positional and named as OpenRLHF passes them.
        loss = self.actor_loss_fn(
            experience.scored,
            experience.action_log_probs,
            experience.advantages,
            action_mask=experience.action_mask,
            rollout_log_probs=experience.rollout_log_probs,
            dp_size=4,
        )
        return {"metrics": {"policy_loss": loss.item()}, "step": step}

    def broadcast_to_vllm(self) -> None:
        self.broadcasts += 1

    def ppo_train(self, kl_ctl: float) -> list[dict[str, Any]]:
        return [
            self.training_step(experience(index, self.mu), kl_ctl, index, None)
            for _ in range(self.epochs)
            for index in range(len(TOKENS))
        ]


def keys(recorder: Recorder) -> list[tuple[int, int]]:
    return [(call["step"], call["minibatch"]) for call in recorder.calls]


@pytest.mark.parametrize("name", NAMES)
def test_every_array_has_the_answers_tokens_under_the_mask(name: str) -> None:
    recorder = Recorder()
    watch(Trainer(), recorder).ppo_train(0.0)
    assert [told(call, name) for call in recorder.calls] == [
        [of(name, answer) for answer in ANSWERS[:2]],
        [of(name, answer) for answer in ANSWERS[2:]],
    ]


def test_the_trainer_returns_what_it_returned_unwatched() -> None:
    assert watch(Trainer(), Recorder()).ppo_train(0.1) == Trainer().ppo_train(0.1)


def test_rollouts_are_steps_and_the_optimizers_steps_over_all_epochs_their_minibatches() -> None:
    recorder = Recorder()
    trainer = watch(Trainer(epochs=2), recorder, first_step=6)
    trainer.ppo_train(0.0)
    trainer.ppo_train(0.0)
    assert keys(recorder) == [(6, 0), (6, 1), (6, 2), (6, 3), (7, 0), (7, 1), (7, 2), (7, 3)]


def test_a_version_counts_the_broadcasts_of_weights() -> None:
    recorder = Recorder()
    trainer = watch(Trainer(), recorder, first_step=6)
    for broadcasts in (1, 0, 1):
        trainer.ppo_train(0.0)
        for _ in range(broadcasts):
            trainer.broadcast_to_vllm()
    assert [(call["step"], call["policy_version"]) for call in recorder.calls] == [
        (6, 5), (6, 5), (7, 6), (7, 6), (8, 6), (8, 6),
    ]  # fmt: skip
    assert trainer.broadcasts == 2


def test_the_run_has_ended_where_the_model_is_saved_and_not_where_a_checkpoint_is() -> None:
    recorder = Recorder()
    trainer = watch(Trainer(), recorder)
    trainer.ppo_train(0.0)
    trainer.strategy.save_model("actor", "tokenizer", "/ckpt/global_step4_hf")
    assert recorder.ends == []
    trainer.strategy.save_model("actor", "tokenizer", "/out")
    assert (recorder.ends, trainer.saved) == ([False], ["/ckpt/global_step4_hf", "/out"])


def test_a_trainer_that_never_calls_its_loss_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    class Elsewhere(Trainer):
        def training_step(self, *arguments: Any, **named: Any) -> dict[str, Any]:
            return {}

    trainer = watch(Elsewhere(), Recorder())
    for _ in range(5):
        trainer.ppo_train(0.0)
    [said] = [record.getMessage() for record in caplog.records]
    assert said.startswith("OpenRLHF's actor_loss_fn has seen nothing of 3 training steps")


def test_micro_batches_left_at_the_end_of_an_epoch_belong_to_the_next_gradient_step_as_in_deepspeed() -> None:
    recorder = Recorder()
    watch(Trainer(accumulated=3, epochs=2), recorder).ppo_train(0.0)  # eight micro-batches: two steps, two left over
    assert keys(recorder) == [(1, 0), (1, 1)]
    assert told(recorder.calls[1], "logprobs") == [of("logprobs", ANSWERS[index]) for index in (3, 0, 1)]


def test_dynamic_batches_say_themselves_where_the_optimizer_steps() -> None:
    recorder = Recorder()
    watch(Trainer(dynamic=[1, 0, 0, 1]), recorder).ppo_train(0.0)
    assert [len(call["mask"]) for call in recorder.calls] == [1, 3]


def test_without_the_engines_log_probs_two_are_posted() -> None:
    recorder = Recorder()
    watch(Trainer(mu=False), recorder).ppo_train(0.0)
    assert "sampling_logprobs" not in recorder.calls[0]
    assert told(recorder.calls[0], "old_logprobs") == [of("old_logprobs", answer) for answer in ANSWERS[:2]]


@pytest.mark.parametrize(
    ("mesh", "place"),
    [
        (Mesh(dp=(1, 4), sp=(0, 1), tp=(0, 1)), (1, 4)),
        (Mesh(dp=(1, 2), sp=(1, 2), tp=(0, 1)), None),
        (Mesh(dp=(0, 2), sp=(0, 1), tp=(1, 2)), None),
    ],
)
def test_one_rank_of_those_that_share_a_sequence_posts(mesh: Mesh, place: tuple[int, int] | None) -> None:
    recorder, trainer = Recorder(), Trainer(accumulated=4)
    trainer.strategy.ds_device_mesh = mesh
    watch(trainer, recorder).ppo_train(0.0)
    assert [(call["shard"], call["shards"]) for call in recorder.calls] == ([place] if place else [])
