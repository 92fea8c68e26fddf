"""ROLL's adapter, driven with a worker and a strategy that call each other as those of release 0.3.0 do."""

from functools import wraps
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from offpolicy_monitor.client.adapters.roll import arrays, watched

from tests.client.adapters.recorder import Recorder
from tests.client.adapters.tokens import of, told

# Prompts of two tokens; answers of three and of two, right-padded; arrays but the mask begin at the second token.
TOKENS = [[0, 1, 2, 3, 4], [10, 11, 12, 13, 14]]
ANSWERS = [[2, 3, 4], [12, 13]]
NAMES = ["sampling_logprobs", "old_logprobs", "logprobs", "advantages"]
FLAG = "remote"


def values(name: str) -> torch.Tensor:
    """[2, 4]: position t belongs to token t + 1."""
    return torch.tensor([of(name, row[1:]) for row in TOKENS])


def batch(rows: slice = slice(None), **changes: Any) -> dict[str, torch.Tensor]:
    whole = {
        "infer_logprobs": values("sampling_logprobs"),
        "old_log_probs": values("old_logprobs"),
        "advantages": values("advantages"),
        "response_mask": torch.tensor([[0, 0, 1, 1, 1], [0, 0, 1, 1, 0]]),
        "scored": values("logprobs"),
    }
    return {name: value[rows] for name, value in (whole | changes).items() if value is not None}


def register(function: Any) -> Any:
    """As ROLL marks a method that it calls remotely: a wrapper with an attribute."""

    @wraps(function)
    def inner(*arguments: Any, **named: Any) -> Any:
        return function(*arguments, **named)

    setattr(inner, FLAG, {"dispatch_mode": "dp"})
    return inner


class Strategy:
    """One gradient step, the batch in micro-batches of one sequence."""

    def train_step(self, batch: SimpleNamespace, loss_func: Any) -> dict[str, list[float]]:
        micros = [{name: value[row : row + 1] for name, value in batch.batch.items()} for row in range(2)]
        losses = [
            loss_func(SimpleNamespace(batch=micro, meta_info=batch.meta_info), micro["scored"]) for micro in micros
        ]
        return {"loss": [loss.item() for loss, _ in losses]}


class ActorWorker:
    """The part of ROLL's actor worker that the adapter changes."""

    def __init__(self, recompute: bool = True, **rank: int) -> None:
        self.strategy = Strategy()
        self.pipeline_config = SimpleNamespace(enable_old_logprobs_recompute=recompute)
        alone = {"dp_rank": 0, "dp_size": 1, "tp_rank": 0, "cp_rank": 0, "pp_rank": 0}
        self.rank_info = SimpleNamespace(**(alone | rank))

    @register
    def train_step(self, data: SimpleNamespace) -> list[dict[str, Any]]:
        return [self.strategy.train_step(batch=data, loss_func=self.loss_func) for _ in range(2)]

    def get_old_log_probs_with_cache(self, data: SimpleNamespace, log_probs: torch.Tensor) -> torch.Tensor:
        recompute = self.pipeline_config.enable_old_logprobs_recompute
        old: torch.Tensor = data.batch["old_log_probs"] if recompute else log_probs.detach()
        return old

    def loss_func(self, data: SimpleNamespace, output_tensor: torch.Tensor) -> tuple[torch.Tensor, dict[str, Any]]:
        old = self.get_old_log_probs_with_cache(data, output_tensor)
        mask = data.batch["response_mask"][:, 1:]
        return -((output_tensor - old).exp() * data.batch["advantages"] * mask).sum(), {}


def data(step: int = 5, **changes: Any) -> SimpleNamespace:
    return SimpleNamespace(batch=batch(**changes), meta_info={"global_step": step})


def trained(recorder: Recorder, given: SimpleNamespace | None = None, recompute: bool = True, **rank: int) -> Any:
    """A watched worker's own result of one rollout of two gradient steps."""
    worker: Any = watched(ActorWorker, lambda: recorder)(recompute, **rank)
    return worker.train_step(given or data())


@pytest.mark.parametrize("name", NAMES)
def test_every_array_has_the_answers_tokens_under_the_mask(name: str) -> None:
    recorder = Recorder()
    trained(recorder)
    assert [told(call, name) for call in recorder.calls] == [[of(name, answer) for answer in ANSWERS]] * 2


def test_the_worker_returns_what_it_returned_unwatched_and_keeps_its_marks() -> None:
    assert trained(Recorder()) == ActorWorker().train_step(data())
    worker: Any = watched(ActorWorker, Recorder)
    assert getattr(worker.train_step, FLAG) == {"dispatch_mode": "dp"} and worker.__name__ == "ActorWorker"


def test_the_global_step_is_the_step_and_its_gradient_steps_are_minibatches() -> None:
    recorder = Recorder()
    worker: Any = watched(ActorWorker, lambda: recorder)(dp_rank=1, dp_size=3)
    worker.train_step(data(5))
    worker.train_step(data(6))
    assert [(call["step"], call["minibatch"]) for call in recorder.calls] == [(5, 0), (5, 1), (6, 0), (6, 1)]
    assert {(call["shard"], call["shards"]) for call in recorder.calls} == {(1, 3)}


@pytest.mark.parametrize(("every", "versions"), [(1, [5, 5, 6, 6]), (3, [1, 1, 2, 2]), (None, [5, 5, 6, 6])])
def test_a_version_counts_the_updates_of_the_engines(every: int | None, versions: list[int]) -> None:
    recorder = Recorder()
    worker: Any = watched(ActorWorker, lambda: recorder)()
    if every is not None:
        worker.worker_config = SimpleNamespace(model_update_frequency=every)
    worker.train_step(data(5))
    worker.train_step(data(6))
    assert [call["policy_version"] for call in recorder.calls] == versions


@pytest.mark.parametrize(("rank", "told_of"), [({}, 1), ({"pp_size": 2}, 0), ({"pp_size": 2, "pp_rank": 1}, 1)])
def test_a_loss_that_asks_for_no_pi_old_is_told_once_where_a_loss_is_computed(
    rank: dict[str, int], told_of: int, caplog: pytest.LogCaptureFixture
) -> None:
    class Other(ActorWorker):
        def loss_func(self, data: SimpleNamespace, output_tensor: torch.Tensor) -> tuple[torch.Tensor, dict[str, Any]]:
            return output_tensor.sum(), {}

    worker: Any = watched(Other, Recorder)(**rank)
    for step in range(3):
        worker.train_step(data(step))
    said = [record.getMessage() for record in caplog.records]
    assert [one.split(" has seen")[0] for one in said] == ["ROLL's get_old_log_probs_with_cache"] * told_of


def test_a_forward_that_is_pi_old_and_pi_at_once_is_sent_as_pi() -> None:
    recorder = Recorder()
    trained(recorder, recompute=False)
    assert "old_logprobs" not in recorder.calls[0]
    assert told(recorder.calls[0], "sampling_logprobs") == [of("sampling_logprobs", answer) for answer in ANSWERS]


@pytest.mark.parametrize("mu", [None, torch.zeros(0)])
def test_an_engine_that_returned_no_log_probs_has_no_mu(mu: torch.Tensor | None) -> None:
    sent = arrays(batch(infer_logprobs=mu), values("logprobs"), values("old_logprobs"))
    assert "sampling_logprobs" not in sent and told(sent, "old_logprobs")[1] == of("old_logprobs", ANSWERS[1])


def test_one_log_prob_alone_is_not_posted() -> None:
    recorder = Recorder()
    trained(recorder, data(infer_logprobs=None), recompute=False)
    assert recorder.calls == []


@pytest.mark.parametrize("rank", [{"tp_rank": 1}, {"cp_rank": 1}])
def test_one_rank_of_those_that_share_tokens_posts(rank: dict[str, int]) -> None:
    recorder = Recorder()
    trained(recorder, None, True, **rank)
    assert recorder.calls == []


def inferring(strategy: str, temperature: float = 0.95, **engine: Any) -> SimpleNamespace:
    """ROLL's configuration of the workers that sample."""
    return SimpleNamespace(
        generating_args=SimpleNamespace(temperature=temperature),
        strategy_args=SimpleNamespace(strategy_name=strategy, strategy_config=engine),
    )


@pytest.mark.parametrize(
    ("infer", "is_said"),
    [
        (inferring("sglang"), True),
        (inferring("vllm", logprobs_mode="processed_logprobs"), True),
        (inferring("vllm"), False),
        (inferring("sglang", temperature=1.0), False),
        (inferring("hf_infer"), False),
    ],
)
def test_an_engine_that_scales_by_the_temperature_beside_a_trainer_that_does_not_is_said_once(
    caplog: pytest.LogCaptureFixture, infer: SimpleNamespace, is_said: bool
) -> None:
    recorder = Recorder()
    worker: Any = watched(ActorWorker, lambda: recorder)()
    worker.pipeline_config.actor_infer = infer
    worker.train_step(data())
    assert len(recorder.calls) == 2
    assert ["ROLL's watched worker: mu is after" in message for message in caplog.messages] == [True] * is_said
