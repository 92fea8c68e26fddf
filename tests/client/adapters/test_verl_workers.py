"""What stands around verl's workers, with stand-ins for them; `make frameworks` runs it around verl's own."""

import asyncio
import logging
import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from offpolicy_monitor.client.adapters.verl_workers import BYPASSED, NO_MU, watch

from tests.client.adapters.recorder import Poster, Recorder
from tests.fixtures.application import Client

MU = torch.tensor([[-0.5, -1.25, 0.0], [-2.25, -0.75, -0.5]])
OLD = MU + torch.tensor([[0.25, -0.25, 9.0], [0.0, 0.5, 0.25]])
MASK = torch.tensor([[1, 1, 0], [1, 1, 1]])


class Data(dict[str, Any]):
    """What the adapter reads of a TensorDict."""

    shape = (2,)

    def select(self, *names: str) -> "Data":
        return Data({name: self[name] for name in names})

    def to_padded_tensor(self) -> "Data":
        return self


def data(**fields: Any) -> Data:
    """The sequences of a step."""
    whole = {"rollout_log_probs": MU, "old_log_probs": OLD, "response_mask": MASK, "mini_batch_size": 2, "epochs": 2}
    return Data(whole | {"min_global_steps": [1, 2]} | fields)


class Engine:
    """One rank of a model that is one number."""

    def __init__(self) -> None:
        self.shift = torch.nn.Parameter(torch.zeros(()))
        self.source = True

    def is_mp_src_rank_with_outputs(self) -> bool:
        return self.source

    def get_data_parallel_rank(self) -> int:
        return 0

    def get_data_parallel_size(self) -> int:
        return 1


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Stand-ins for verl's module of workers and for two functions of its own."""

    class TrainingWorker:
        def __init__(self, kind: str = "language_model") -> None:
            self.config, self.engine, self.loss_fn = SimpleNamespace(model_type=kind), Engine(), None

        def set_loss_fn(self, loss_fn: Any) -> None:
            self.loss_fn = loss_fn

        def train_mini_batch(self, data: Data) -> list[float]:
            return [self.train_batch(data) for _ in range(data["epochs"])]

        def train_batch(self, data: Data) -> float:
            assert self.loss_fn is not None
            output = {"log_probs": OLD + self.engine.shift}
            loss = self.loss_fn(model_output=output, data=data, dp_group=None)
            with torch.no_grad():
                self.engine.shift += 0.125  # pyrefly: ignore[attribute-assign-on-never]
            return float(loss.detach())

        def infer_batch(self, data: Data) -> float:
            assert self.loss_fn is not None
            return float(self.loss_fn(model_output={"log_probs": OLD}, data=data, dp_group=None))

    class ActorRolloutRefWorker:
        def __init__(self) -> None:
            self.actor, self.config = TrainingWorker(), SimpleNamespace(rollout={"name": "vllm", "temperature": 1.0})

        async def update_weights(self, global_steps: int | None = None, mode: str = "auto") -> str:
            return mode

    modules = {
        "verl.workers.engine_workers": SimpleNamespace(
            TrainingWorker=TrainingWorker, ActorRolloutRefWorker=ActorRolloutRefWorker
        ),
        "verl.workers.utils.padding": SimpleNamespace(no_padding_2_padding=lambda tensor, data: tensor),
        "verl.utils.tensordict_utils": SimpleNamespace(get=lambda data, key, default=None: data.get(key, default)),
    }
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    return modules["verl.workers.engine_workers"]


def loss(model_output: Any, data: Any, dp_group: Any = None) -> torch.Tensor:
    """Whatever the run's own loss is."""
    return (model_output["log_probs"] * data["response_mask"]).sum()


def actor(workers: Any, monitor: Any, **options: Any) -> Any:
    """A worker whose actor was given its loss and whose weights of step 2 went to the engines."""
    watch(lambda: monitor, **options)
    worker = workers.ActorRolloutRefWorker()
    worker.actor.set_loss_fn(loss)
    assert asyncio.run(worker.update_weights(2, mode="naive")) == "naive"
    return worker


def test_each_gradient_step_has_all_three_log_probs_under_the_step_after_the_weights(
    client: Client, workers: Any
) -> None:
    poster = Poster(client, "verl")
    worker = actor(workers, poster)
    assert worker.actor.train_mini_batch(data()) == [float((OLD * MASK).sum()), float(((OLD + 0.125) * MASK).sum())]
    numbers = [(call["step"], call["minibatch"], call["minibatches"], call["policy_version"]) for call in poster.calls]
    assert numbers == [(3, 0, 2, 2), (3, 1, 2, 2)]
    merged = poster.step(3, 1)
    assert (merged["tokens"], merged["sequences"], sorted(merged["gaps"])) == (5, 2, ["mismatch", "staleness", "total"])
    assert merged["gaps"]["staleness"]["log_ratio_mean"] == pytest.approx(0.125)
    assert merged["gaps"]["mismatch"]["log_ratio_mean"] == pytest.approx(0.75 / 5)
    assert merged["policy_lag"]["max"] == 1


def test_a_step_that_is_trained_on_in_parts_goes_on_and_the_next_weights_begin_another(workers: Any) -> None:
    recorder = Recorder()
    worker = actor(workers, recorder, minibatches=4)
    for synced in (None, None, 3, 7):
        if synced is not None:
            asyncio.run(worker.update_weights(synced))
        worker.actor.train_mini_batch(data())
    numbers = [(call["step"], call["minibatch"]) for call in recorder.calls]
    assert numbers == [(3, 0), (3, 1), (3, 2), (3, 3), (4, 0), (4, 1), (8, 0), (8, 1)]
    assert {call["minibatches"] for call in recorder.calls} == {4}


def test_without_word_of_weights_each_batch_is_the_next_step(workers: Any) -> None:
    recorder = Recorder()
    watch(lambda: recorder)
    worker = workers.TrainingWorker()
    worker.set_loss_fn(loss)
    for _ in range(2):
        worker.train_mini_batch(data(epochs=1))
    assert [(call["step"], call["minibatch"]) for call in recorder.calls] == [(1, 0), (2, 0)]


@pytest.mark.parametrize(
    ("bypass", "posts_old", "says"), [(None, False, [BYPASSED]), (True, False, []), (False, True, [])]
)
def test_old_log_probs_that_are_mu_to_the_bit_are_mu_unless_it_is_said_that_they_are_not(
    workers: Any, caplog: pytest.LogCaptureFixture, bypass: bool | None, posts_old: bool, says: list[str]
) -> None:
    recorder = Recorder()
    worker = actor(workers, recorder, bypass=bypass)
    worker.actor.train_mini_batch(data(old_log_probs=MU.clone()))
    assert ["old_logprobs" in call for call in recorder.calls] == [posts_old] * 2
    assert [record.getMessage() for record in caplog.records] == says


def test_a_batch_without_the_engines_log_probs_gives_the_staleness_and_says_so_once(
    workers: Any, caplog: pytest.LogCaptureFixture
) -> None:
    recorder, without = Recorder(), data()
    del without["rollout_log_probs"], without["min_global_steps"]
    actor(workers, recorder).actor.train_mini_batch(without)
    assert [("sampling_logprobs" in call, "old_logprobs" in call) for call in recorder.calls] == [(False, True)] * 2
    assert all("policy_versions" not in call for call in recorder.calls)
    assert [record.getMessage() for record in caplog.records] == [NO_MU]


def test_a_rank_that_is_not_the_source_of_its_group_and_a_forward_without_training_post_nothing(workers: Any) -> None:
    recorder = Recorder()
    worker = actor(workers, recorder)
    worker.actor.infer_batch(data())
    worker.actor.engine.source = False
    worker.actor.train_mini_batch(data())
    assert recorder.calls == []


@pytest.mark.parametrize("source, told", [(True, 1), (False, 0)])
def test_an_engine_that_computes_its_loss_elsewhere_is_told_of_once_where_it_has_outputs(
    workers: Any, caplog: pytest.LogCaptureFixture, source: bool, told: int
) -> None:
    workers.TrainingWorker.train_batch = lambda worker, data: 0.0
    worker = actor(workers, recorder := Recorder())
    worker.actor.engine.source = source
    for _ in range(3):
        worker.actor.train_mini_batch(data())
    assert recorder.calls == []
    assert caplog.text.count("has seen nothing of 3 training steps") == told


def test_the_critics_loss_stays_as_it_is(workers: Any) -> None:
    watch(Recorder)
    critic = workers.TrainingWorker("value_model")
    critic.set_loss_fn(loss)
    assert critic.loss_fn is loss and len(critic.train_mini_batch(data())) == 2


def test_a_verl_that_changed_costs_the_figures_and_trains_as_before(
    workers: Any, caplog: pytest.LogCaptureFixture
) -> None:
    class Lenient(Recorder):
        strict = False

    recorder = Lenient()
    worker = actor(workers, recorder)
    worker.config = None
    changed = data(mini_batch_size="many")
    changed["responses_mask"] = changed.pop("rollout_log_probs")
    asyncio.run(worker.update_weights(3))
    worker.actor.loss_fn.engine.is_mp_src_rank_with_outputs = None
    with caplog.at_level(logging.WARNING, "offpolicy_monitor"):
        assert len(worker.actor.train_mini_batch(changed)) == 2
    assert recorder.calls == [] and any("posts nothing" in record.getMessage() for record in caplog.records)


def test_a_verl_without_these_workers_is_told_of_and_not_touched(
    workers: Any, caplog: pytest.LogCaptureFixture
) -> None:
    train = workers.TrainingWorker.train_batch
    del workers.ActorRolloutRefWorker.update_weights
    watch(Recorder)
    assert workers.TrainingWorker.train_batch is train
    [said] = [record.getMessage() for record in caplog.records]
    assert said.startswith("verl's workers are not as this adapter knows them, nothing is posted: AttributeError")


def test_a_gradient_step_whose_tokens_are_all_masked_is_no_bypass(
    workers: Any, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = Recorder()
    actor(workers, recorder).actor.train_mini_batch(data(old_log_probs=MU, response_mask=torch.zeros_like(MASK)))
    assert all("old_logprobs" in call for call in recorder.calls) and caplog.records == []
