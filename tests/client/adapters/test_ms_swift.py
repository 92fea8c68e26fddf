"""ms-swift's adapter around a trainer that calls itself as its GRPOTrainer 4.6.0 does."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from offpolicy_monitor.client.adapters.ms_swift import callback, watch

from tests.client.adapters.recorder import Recorder

LOGPROBS = {"sampling_logprobs": "rollout_per_token_logps", "old_logprobs": "old_per_token_logps"}


class Batch(SimpleNamespace):
    """A GRPOBatch of so many completions of three tokens, every value another one."""

    @classmethod
    def of(cls, rows: int, seed: int) -> "Batch":
        draws = torch.Generator().manual_seed(seed)
        names = (*LOGPROBS.values(), "advantages")
        values = {name: -torch.rand(rows, 3, generator=draws) for name in names}
        return cls(completion_mask=torch.tensor([[False, True, True]] * rows), **values)


class Trainer:
    """The calls of ms-swift's trainer that the adapter stands around; `parts` are what it divides each batch into."""

    def __init__(
        self, parts: Sequence[Batch] = (), *, liger: bool = False, process: int = 0, together: int = 1
    ) -> None:
        self.parts, self.liger = parts, liger
        self.args = SimpleNamespace(steps_per_generation=2, gradient_accumulation_steps=2)
        self.accelerator = SimpleNamespace(process_index=process, num_processes=4)
        self.template = SimpleNamespace(sequence_parallel_size=together)
        self.state, self.num_iterations, self._step = SimpleNamespace(global_step=0), 1, 0
        self.model, self.scored = SimpleNamespace(training=True), list[torch.Tensor]()
        self.callbacks: list[Any] = []

    def add_callback(self, callback: Any) -> None:
        self.callbacks.append(callback)

    def compute_loss(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> float:
        (inputs,) = inputs if isinstance(inputs, list) else [inputs]
        return 1.0 if self.liger else self._compute_loss(model, inputs["model_inputs"], inputs["grpo_batch"], None)

    def _compute_loss(self, model: Any, model_inputs: Any, grpo_batch: Any, origin_data: Any) -> float:
        parts = self.parts or [grpo_batch]
        return sum(self._compute_loss_and_metrics(model, {}, part)[0] for part in parts)

    def _compute_loss_and_metrics(self, model: Any, model_inputs: Any, grpo_batch: Any) -> tuple[float, dict[str, Any]]:
        per_token_logps, _ = self._get_per_token_logps_and_entropies(model, model_inputs, grpo_batch)
        self.scored.append(per_token_logps)
        return float(per_token_logps.sum()), {}

    def _get_per_token_logps_and_entropies(
        self, model: Any, model_inputs: Any, batch: Any
    ) -> tuple[torch.Tensor, None]:
        return batch.old_per_token_logps + 0.5, None

    def step(self, batch: Batch) -> float:
        """One forward; every second one is followed by an optimizer step."""
        loss = self.compute_loss(self.model, [{"model_inputs": {}, "grpo_batch": batch}])
        self._step += 1
        self.state.global_step = self._step // 2
        return loss


def test_every_forward_posts_what_the_batch_holds_and_what_was_scored_for_it() -> None:
    recorder, trainer, plain = Recorder(), Trainer(), Trainer()
    watch(trainer, recorder)
    batches = [Batch.of(2, seed) for seed in range(3)]
    assert [trainer.step(batch) for batch in batches] == [plain.step(batch) for batch in batches]
    for call, batch, scored in zip(recorder.calls, batches, trainer.scored, strict=True):
        assert torch.equal(torch.stack(call["logprobs"]), scored)
        assert torch.equal(torch.stack(call["mask"]), batch.completion_mask)
        for name, field in {**LOGPROBS, "advantages": "advantages"}.items():
            assert torch.equal(torch.stack(call[name]), getattr(batch, field)), name
    keys = [[call[name] for name in ("step", "minibatch", "shard", "shards")] for call in recorder.calls]
    assert keys == [[0, 0, 0, 8], [0, 0, 1, 8], [1, 0, 0, 8]]
    assert [call["policy_version"] for call in recorder.calls] == [0, 0, 1]


def test_rollouts_that_are_generated_ahead_have_the_version_of_the_round_before() -> None:
    trainer = watch(Trainer(), recorder := Recorder())
    trainer.args.async_generate = True
    for seed in range(6):
        trainer.step(Batch.of(2, seed))
    assert [call["policy_version"] for call in recorder.calls] == [0, 0, 1, 1, 2, 2]
    assert [call["policy_versions"].tolist() for call in recorder.calls] == [[0, 0]] * 4 + [[1, 1]] * 2


def test_parts_of_a_batch_are_one_shard_and_a_part_that_is_computed_again_counts_once() -> None:
    first, second = Batch.of(2, 1), Batch.of(1, 2)
    recorder, trainer = Recorder(), Trainer([first, second, second])
    watch(trainer, recorder).step(Batch.of(3, 3))
    [call] = recorder.calls
    expected = torch.cat([first.old_per_token_logps, second.old_per_token_logps])
    assert torch.equal(torch.stack(call["old_logprobs"]), expected)
    assert torch.equal(torch.stack(call["logprobs"]), expected + 0.5)


def test_what_is_scored_outside_of_a_loss_is_not_taken_for_the_policy() -> None:
    trainer = watch(Trainer(), recorder := Recorder())
    trainer._get_per_token_logps_and_entropies(trainer.model, {}, Batch.of(2, 9))
    trainer.step(batch := Batch.of(2, 1))
    assert torch.equal(torch.stack(recorder.calls[0]["logprobs"]), batch.old_per_token_logps + 0.5)


def test_an_evaluation_posts_nothing_and_leaves_nothing_behind() -> None:
    trainer = watch(Trainer(), recorder := Recorder())
    trainer.compute_loss(SimpleNamespace(training=False), {"model_inputs": {}, "grpo_batch": Batch.of(2, 9)})
    trainer.step(Batch.of(1, 1))
    assert [len(call["mask"]) for call in recorder.calls] == [1]


def test_a_loss_by_liger_posts_mu_and_pi_old_and_the_log_says_once_that_pi_is_missing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    trainer = watch(Trainer(liger=True), recorder := Recorder())
    for seed in range(4):
        trainer.step(Batch.of(1, seed))
        trainer.callbacks[0].on_step_end()
    assert len(recorder.calls) == 4
    assert all(call.keys() >= LOGPROBS.keys() and "logprobs" not in call for call in recorder.calls)
    [said] = [record.getMessage() for record in caplog.records]
    assert said.startswith("ms-swift's _compute_loss_and_metrics has seen nothing of 3 training steps, so no logprobs")


@pytest.mark.parametrize(("process", "shards"), [(0, [0, 1]), (1, []), (2, [2, 3]), (3, [])])
def test_of_processes_that_gather_each_others_samples_the_first_posts(process: int, shards: list[int]) -> None:
    trainer = watch(Trainer(process=process, together=2), recorder := Recorder())
    for seed in range(2):
        trainer.step(Batch.of(1, seed))
    assert [call["shard"] for call in recorder.calls] == shards
    assert {call["shards"] for call in recorder.calls} <= {4}


def test_a_callback_watches_from_the_beginning_of_training_and_says_its_end() -> None:
    trainer, recorder = Trainer(), Recorder()
    row = callback(lambda: recorder)(trainer.args, trainer)
    row.on_train_begin(trainer.args, trainer.state)
    trainer.step(Batch.of(1, 1))
    for other in (row, *trainer.callbacks):
        other.on_train_end()
    assert (len(recorder.calls), recorder.ends) == (1, [False])


def test_a_callback_without_an_address_leaves_training_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    trainer = Trainer()
    callback(lambda: 1 / 0)(trainer.args, trainer).on_train_begin()  # pyrefly: ignore[bad-argument-type]
    assert trainer.step(batch := Batch.of(1, 1)) == Trainer().step(batch)
    assert "no monitor in this worker" in caplog.text
