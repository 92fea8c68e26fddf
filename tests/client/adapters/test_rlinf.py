"""RLinf's adapter, driven with a worker whose methods call each other as those of FSDPActor do (commit a3816b5)."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from offpolicy_monitor.client.adapters.rlinf import watched

from tests.client.adapters.recorder import Recorder
from tests.client.adapters.tokens import of, told

# Prompts of two tokens; answers of three and of two, right-padded to three; log-probs are of the answers alone.
TOKENS = [[0, 1, 2, 3, 4], [10, 11, 12, 13, 14]]
ANSWERS = [[2, 3, 4], [12, 13]]
NAMES = ["sampling_logprobs", "old_logprobs", "logprobs", "advantages"]


def values(name: str) -> torch.Tensor:
    """[2, 3], the answer's tokens."""
    return torch.tensor([of(name, row[2:]) for row in TOKENS])


def batch(**changes: Any) -> dict[str, torch.Tensor]:
    whole = {
        "input_ids": torch.tensor(TOKENS),
        "rollout_logprobs": values("sampling_logprobs"),
        "recomputed_logprobs": values("old_logprobs"),
        "advantages": values("advantages"),
        "response_mask": torch.tensor([[0, 0, 1, 1, 1], [0, 0, 1, 1, 0]]).bool(),
    }
    return {name: value for name, value in (whole | changes).items() if value is not None}


class FSDPActor:
    """The part of RLinf's worker that the adapter changes, with two gradient steps of two micro-batches a rollout."""

    def __init__(self, backend: str = "sglang", temperature: float = 1.0, packs: bool = False) -> None:
        params = SimpleNamespace(temperature=temperature)
        rollout = SimpleNamespace(rollout_backend=backend)
        self.cfg = SimpleNamespace(algorithm=SimpleNamespace(sampling_params=params), rollout=rollout)
        self.n_mini_batches, self._rank, self._world_size = 2, 1, 4
        self.enable_dynamic_batch_size, self.variable_seq_lengths = packs, False
        self.weight = torch.nn.Parameter(values("logprobs"))
        self.recomputed: list[torch.Tensor] = []

    def load_checkpoint(self, load_path: str) -> None:
        """There is nothing to load."""

    def forward_batch(self, m_batch: dict[str, torch.Tensor], calculate_entropy: bool = False) -> Any:
        scored = self.weight[[TOKENS.index(row) for row in m_batch["input_ids"].tolist()]]
        return (scored, torch.full_like(scored, 0.5)) if calculate_entropy else scored

    def training_step(self, batch: dict[str, torch.Tensor]) -> dict[str, float]:
        losses = []
        for row in range(2):
            m_batch = {name: value[row : row + 1] for name, value in batch.items()}
            logprobs, _ = self.forward_batch(m_batch, True)
            old = m_batch.get("recomputed_logprobs", m_batch.get("rollout_logprobs"))
            loss = -((logprobs - old).exp() * m_batch["advantages"] * m_batch["response_mask"][:, -3:]).sum()
            losses.append(float(torch.autograd.grad(loss, self.weight)[0].sum()))
        return {"actor/gradient": sum(losses)}

    def run_training(self, input_channel: dict[str, torch.Tensor], do_offload: bool = False) -> list[dict[str, float]]:
        return [self.training_step(batch=input_channel) for _ in range(self.n_mini_batches)]

    def run_inference(self) -> None:
        self.recomputed.append(self.forward_batch(batch()))


def made(recorder: Recorder, **settings: Any) -> Any:
    return watched(FSDPActor, lambda: recorder)(**settings)


@pytest.mark.parametrize("name", NAMES)
def test_every_array_has_the_answers_tokens_under_the_mask(name: str) -> None:
    recorder = Recorder()
    made(recorder).run_training(batch())
    assert [told(call, name) for call in recorder.calls] == [[of(name, answer) for answer in ANSWERS]] * 2


def test_the_worker_returns_what_it_returned_unwatched_under_its_own_name() -> None:
    assert made(Recorder()).run_training(batch()) == FSDPActor().run_training(batch())
    assert watched(FSDPActor, Recorder).__name__ == "FSDPActor"


def test_a_rollout_is_a_step_and_its_gradient_steps_are_minibatches() -> None:
    recorder = Recorder()
    worker = made(recorder)
    worker.run_training(batch())
    worker.run_training(batch(), do_offload=False)
    told = [(call["step"], call["minibatch"], call["minibatches"], call["policy_version"]) for call in recorder.calls]
    assert told == [(1, 0, 2, 1), (1, 1, 2, 1), (2, 0, 2, 2), (2, 1, 2, 2)]
    assert {(call["shard"], call["shards"]) for call in recorder.calls} == {(1, 4)}


@pytest.mark.parametrize(("path", "step"), [("/out/checkpoints/global_step_40/actor", 41), ("/models/base", 1)])
def test_a_resumed_run_goes_on_where_its_checkpoint_says(path: str, step: int) -> None:
    recorder = Recorder()
    worker = made(recorder)
    worker.load_checkpoint(load_path=path)
    worker.run_training(batch())
    assert {call["step"] for call in recorder.calls} == {step}


def test_what_is_scored_outside_of_a_gradient_step_is_not_posted() -> None:
    recorder = Recorder()
    worker = made(recorder)
    worker.run_inference()
    worker.run_training(batch())
    assert len(worker.recomputed) == 1 and [len(call["logprobs"]) for call in recorder.calls] == [2, 2]


@pytest.mark.parametrize(("absent", "name"), [("rollout_logprobs", NAMES[0]), ("recomputed_logprobs", NAMES[1])])
def test_what_the_configuration_leaves_out_is_not_sent(absent: str, name: str) -> None:
    recorder = Recorder()
    made(recorder).run_training(batch(**{absent: None}))
    assert [name in call for call in recorder.calls] == [False, False]


@pytest.mark.parametrize(("packs", "sent"), [(False, True), (True, False)])
def test_the_entropy_of_packed_rows_lies_beside_other_tokens_and_is_not_sent(packs: bool, sent: bool) -> None:
    recorder = Recorder()
    made(recorder, packs=packs).run_training(batch())
    assert ["entropy" in call for call in recorder.calls] == [sent, sent]


@pytest.mark.parametrize(("backend", "temperature", "said"), [("vllm", 0.7, 1), ("vllm", 1.0, 0), ("sglang", 0.7, 0)])
def test_log_probs_of_vllm_before_the_temperature_are_told_of_once(
    backend: str, temperature: float, said: int, caplog: pytest.LogCaptureFixture
) -> None:
    worker = made(Recorder(), backend=backend, temperature=temperature)
    worker.run_training(batch())
    worker.run_training(batch())
    assert ["sampling temperature" in record.getMessage() for record in caplog.records] == [True] * said


def test_a_worker_that_trains_otherwise_is_refused_before_it_starts() -> None:
    class MegatronActor:
        run_training = training_step = load_checkpoint = FSDPActor.load_checkpoint

    with pytest.raises(TypeError, match=r"MegatronActor has no forward_batch: RLinf's FSDPActor alone"):
        watched(MegatronActor, Recorder)


def test_a_loss_that_scores_otherwise_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    class Other(FSDPActor):
        def training_step(self, batch: dict[str, torch.Tensor]) -> dict[str, float]:
            return {}

    worker: Any = watched(Other, Recorder)()
    for _ in range(3):
        worker.run_training(batch())
    assert [record.getMessage().split(" has seen")[0] for record in caplog.records] == ["RLinf's forward_batch"]
