"""torchtitan's adapter, driven with a trainer and losses that call each other as those of commit b5bcd76 do."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from offpolicy_monitor.client.adapters import torchtitan
from offpolicy_monitor.client.adapters.torchtitan import samples, watch

from tests.client.adapters.recorder import Recorder
from tests.client.adapters.tokens import of, told

# Two samples of four and of two predicted tokens, the first of each in its prompt, and two positions of padding.
TOKENS = [0, 1, 2, 3, 10, 11, 90, 91]
POSITIONS = torch.tensor([0, 1, 2, 3, 0, 1, 0, 1])
ANSWERS = [[1, 2, 3], [11]]
MASK = torch.tensor([token in {1, 2, 3, 11} for token in TOKENS])
NAMES = ["sampling_logprobs", "logprobs", "advantages"]


def values(name: str) -> torch.Tensor:
    return torch.tensor(of(name, TOKENS))


def compute_logprobs(logits: torch.Tensor, labels: torch.Tensor, *, return_entropy: bool = False) -> Any:
    return (logits, torch.full_like(logits, 0.5)) if return_entropy else logits


@pytest.fixture(autouse=True)
def own_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    """The function that a test's adapter takes the place of comes back afterwards."""
    monkeypatch.setitem(globals(), "compute_logprobs", compute_logprobs)


class Loss:
    """DAPOLoss."""

    entropy = True

    def __call__(
        self, logits: torch.Tensor, labels: torch.Tensor, tokens: float, *, generator_logprobs: Any, advantages: Any,
        loss_mask: Any,
    ) -> tuple[torch.Tensor, dict[str, Any]]:  # fmt: skip
        scored = compute_logprobs(logits, labels, return_entropy=self.entropy)
        pi = scored[0] if self.entropy else scored
        return -((pi - generator_logprobs).exp() * advantages * loss_mask).sum() / tokens, {}


class Alone(Loss):
    """A loss that asks for no entropy."""

    entropy = False


class Chunked:
    """ChunkedLossWrapper: the loss of each half."""

    def __init__(self) -> None:
        self.loss_fn = Loss()

    def __call__(self, pred: Any, labels: Any, tokens: float, **inputs: Any) -> tuple[torch.Tensor, dict[str, Any]]:
        halves = [slice(0, 4), slice(4, 8)]
        parts = [
            self.loss_fn(pred[half], labels[half], tokens, **{name: array[half] for name, array in inputs.items()})
            for half in halves
        ]
        return torch.stack([loss for loss, _ in parts]).sum(), {}


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(values("logprobs"))

    def forward(self, token_ids: torch.Tensor, *, attention_masks: Any, positions: torch.Tensor) -> torch.Tensor:
        return self.weight * 1.0


class Trainer:
    """PolicyTrainer: two endpoints, which the controller calls."""

    def __init__(self, loss: Any = None, version: int = 0, tp_rank: int | None = None) -> None:
        self.loss_fn, self.model, self.policy_version = loss or Loss(), Model(), version
        self.optimizers = SimpleNamespace(step=lambda: None)
        mesh = None if tp_rank is None else SimpleNamespace(get_local_rank=lambda: tp_rank)
        self.parallel_dims = SimpleNamespace(get_optional_mesh=lambda name: mesh if name == "tp" else None)
        self.dp_rank, self.dp_size = 1, 2

    def forward_backward(self) -> float:
        pred = self.model(torch.tensor(TOKENS), attention_masks=None, positions=POSITIONS)
        inputs = {"generator_logprobs": values("sampling_logprobs"), "advantages": values("advantages")}
        loss, _ = self.loss_fn(pred, torch.tensor(TOKENS), 4.0, **inputs, loss_mask=MASK)
        return float(torch.autograd.grad(loss, self.model.weight)[0].sum())

    def optim_step(self) -> int:
        self.optimizers.step()
        self.policy_version += 1
        return self.policy_version


@pytest.mark.parametrize("loss", [Loss, Alone, Chunked])
@pytest.mark.parametrize("name", NAMES)
def test_every_array_has_the_answers_tokens_under_the_mask(name: str, loss: type) -> None:
    recorder = Recorder()
    trainer = watch(Trainer(loss()), recorder)
    trainer.forward_backward()
    trainer.optim_step()
    (call,) = recorder.calls
    assert told(call, name) == [of(name, answer) for answer in ANSWERS] and "old_logprobs" not in call
    assert [len(row) for row in call["logprobs"]] == [4, 2, 2] and ("entropy" in call) == (loss is not Alone)


@pytest.mark.parametrize("loss", [Loss, Chunked])
def test_gradients_are_what_they_were_unwatched(loss: type) -> None:
    plain = Trainer(loss()).forward_backward()
    assert watch(Trainer(loss()), Recorder()).forward_backward() == plain


def test_microbatches_are_posted_when_the_optimizers_have_stepped_under_the_controllers_step() -> None:
    recorder = Recorder()
    trainer = watch(Trainer(version=6), recorder)
    for microbatches in (2, 1):
        for _ in range(microbatches):
            trainer.forward_backward()
        trainer.optim_step()
    told = [(call["step"], call["policy_version"], len(call["logprobs"])) for call in recorder.calls]
    assert told == [(7, 6, 6), (8, 7, 3)]
    assert {(call["shard"], call["shards"]) for call in recorder.calls} == {(1, 2)}


@pytest.mark.parametrize(("rank", "posts"), [(None, 1), (0, 1), (1, 0)])
def test_the_first_tensor_parallel_rank_posts(rank: int | None, posts: int) -> None:
    recorder = Recorder()
    trainer = watch(Trainer(tp_rank=rank), recorder)
    trainer.forward_backward()
    trainer.optim_step()
    assert len(recorder.calls) == posts


def test_rows_of_a_batch_are_cut_where_positions_begin_again() -> None:
    assert samples(torch.tensor([[0, 1, 2], [0, 1, 0]]).reshape(-1)) == [3, 2, 1]


def test_a_loss_that_scores_by_itself_trains_on_and_is_told_of_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(torchtitan, "SCORES", "compute_other_logprobs")
    recorder = Recorder()
    trainer = watch(Trainer(), recorder)
    for _ in range(4):
        trainer.forward_backward()
        trainer.optim_step()
    assert recorder.calls == [] and trainer.policy_version == 4
    assert [record.getMessage().split(" has seen")[0] for record in caplog.records] == ["torchtitan's loss"]
