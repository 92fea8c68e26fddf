"""verl's workers with its own TrainingWorker, ppo_loss and TensorDicts, and a tiny engine of verl's base class."""

import asyncio
import functools
import logging
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from offpolicy_monitor.client.adapters.verl import FIELDS
from offpolicy_monitor.client.adapters.verl_workers import BYPASSED, Watched, watch

PROMPTS, ANSWERS = [2, 1, 3, 2], [3, 1, 2, 4]
ADVANTAGES, SYNCED = [1.0, -1.0, 0.5, 2.0], [6, None, 5, 6]
SENT = ("sampling_logprobs", "old_logprobs", "logprobs", "advantages", "policy_versions")


@pytest.fixture
def workers(real: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """verl's module of workers in a group of one process, with what `watch` changes put back at the end."""
    module = real("verl.workers.engine_workers")
    for owner, name in (
        (module.TrainingWorker, "set_loss_fn"),
        (module.TrainingWorker, "train_mini_batch"),
        (module.TrainingWorker, "train_batch"),
        (module.ActorRolloutRefWorker, "update_weights"),
    ):
        monkeypatch.setattr(owner, name, getattr(owner, name))
    store = real("torch.distributed").HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield module
    torch.distributed.destroy_process_group()


def nested(rows: list[Any]) -> torch.Tensor:
    return torch.nested.as_nested_tensor([torch.as_tensor(row) for row in rows], layout=torch.jagged)


def batch(real: Any, *, bypass: bool = False, padded: bool = False) -> Any:
    """A step's sequences as the trainers of v1 hand them to the workers, or, padded, as that of v0 does."""
    draws = np.random.default_rng(3)
    mu = [(-2 * draws.random(n)).astype(np.float32) for n in ANSWERS]
    old = mu if bypass else [(row + 0.1 * draws.standard_normal(len(row))).astype(np.float32) for row in mu]
    rows: dict[str, list[Any]] = {
        "rollout_log_probs": mu,
        "old_log_probs": old,
        "response_mask": [np.ones(n, np.int64) for n in ANSWERS],
        "advantages": [np.full(n, value, np.float32) for n, value in zip(ANSWERS, ADVANTAGES, strict=True)],
        "responses": [np.ones(n, np.int64) for n in ANSWERS],
        "prompts": [np.ones(n, np.int64) for n in PROMPTS],
    }
    told: dict[str, Any] = {"mini_batch_size": 2, "epochs": 2, "global_batch_size": 2, "temperature": 1.0}
    told |= {"compute_loss": True, "dataloader_kwargs": {"shuffle": False}}
    tools = real("verl.utils.tensordict_utils")
    sequences = [p + n for p, n in zip(PROMPTS, ANSWERS, strict=True)]
    if not padded:
        tensors = {name: nested(values) for name, values in rows.items()}
        tensors["input_ids"] = nested([np.ones(n, np.int64) for n in sequences])
        tensors["position_ids"] = nested([np.arange(n) for n in sequences])
        tensors["loss_mask"] = tensors["response_mask"]
        data = tools.get_tensordict(tensors, told)
        tools.assign_non_tensor_stack(data, "extra_fields", [{"min_global_steps": step} for step in SYNCED])
        return data
    wide, whole = max(ANSWERS), max(PROMPTS) + max(ANSWERS)
    tensors = {name: torch.zeros(4, wide, dtype=torch.as_tensor(values[0]).dtype) for name, values in rows.items()}
    for name, values in rows.items():
        for row, value in enumerate(values):
            tensors[name][row, : len(value)] = torch.as_tensor(value)
    tensors["prompts"] = torch.ones(4, max(PROMPTS), dtype=torch.int64)
    left = torch.arange(max(PROMPTS)) >= max(PROMPTS) - torch.tensor(PROMPTS)[:, None]
    right = torch.arange(wide) < torch.tensor(ANSWERS)[:, None]
    tensors["attention_mask"] = torch.cat([left, right], 1).long()
    tensors["input_ids"] = torch.ones(4, whole, dtype=torch.int64)
    tensors["position_ids"] = torch.arange(whole).expand(4, whole)
    data = tools.get_tensordict(tensors, told)
    tools.assign_non_tensor_stack(data, "min_global_steps", SYNCED)
    return real("verl.workers.utils.padding").left_right_2_no_padding(data)


def training(real: Any, workers: Any) -> Any:
    """A TrainingWorker whose engine's model is one number, which it adds to each sequence's old log-probs."""
    base: Any = real("verl.workers.engine.base").BaseEngine

    class Engine(base):
        def __init__(self) -> None:
            self.shift = torch.nn.Parameter(torch.zeros(()))
            self.optimizer = torch.optim.SGD([self.shift], lr=0.5)
            self.calls, self.finite, self.source = 0, True, True

        def get_data_parallel_size(self) -> int:
            return 1

        def get_data_parallel_rank(self) -> int:
            return 0

        def get_data_parallel_group(self) -> None:
            return None

        def is_mp_src_rank_with_outputs(self) -> bool:
            return self.source

        def train_mode(self, **_: Any) -> Any:
            return torch.enable_grad()

        eval_mode = train_mode

        def lr_scheduler_step(self) -> float:
            return 0.5

        def optimizer_zero_grad(self) -> None:
            self.optimizer.zero_grad()

        def optimizer_step(self) -> float:
            if self.finite:
                self.optimizer.step()
            else:
                self.optimizer.zero_grad()
            return 1.0

        def forward_backward_batch(self, data: Any, loss_function: Any, forward_only: bool = False) -> Any:
            tools = real("verl.utils.tensordict_utils")
            tools.assign_non_tensor(data, dp_size=1, batch_num_tokens=10)
            for part in tools.chunk_tensordict(data, 2):
                loss, _ = loss_function(model_output={"log_probs": self.output(part)}, data=part, dp_group=None)
                loss.backward()
                self.calls += 1
            return {"model_output": {}, "loss": [0.0], "metrics": {}}

        def output(self, data: Any) -> torch.Tensor:
            """[the whole sequences] nested: at each position the log-prob of the next token."""
            rows = []
            for position, length in enumerate(data["input_ids"].offsets().diff().tolist()):
                old = data["old_log_probs"]
                answer = old.unbind()[position] if old.is_nested else old[position]
                count = int(
                    (data["response_mask"].unbind() if old.is_nested else data["response_mask"])[position].sum()
                )
                row = torch.full((length,), -9.0)
                row[length - count - 1 : length - 1] = answer[:count]
                rows.append(row + self.shift)
            return torch.nested.as_nested_tensor(rows, layout=torch.jagged)

    worker = workers.TrainingWorker.__new__(workers.TrainingWorker)
    worker.config = SimpleNamespace(model_type="language_model")
    worker.engine, worker.loss_fn, worker.flops_counter, worker.device_name = Engine(), None, None, "cpu"
    worker.model_config, worker.profiler = {}, SimpleNamespace(step=lambda: None, rank=0, check_enable=lambda: False)
    worker.engine_config = SimpleNamespace(
        forward_only=False,
        use_dynamic_bsz=False,
        max_token_len_per_gpu=99,
        micro_batch_size_per_gpu=1,
        use_fused_kernels=False,
    )
    worker._postprocess_output = lambda output, **_: real("verl.utils.tensordict_utils").get_tensordict(
        {}, {"metrics": {}}
    )
    return worker


def loss(real: Any, workers: Any) -> Any:
    """The actor's loss as verl makes it."""
    config = real("verl.workers.config").ActorConfig(strategy="fsdp", rollout_n=1, ppo_micro_batch_size_per_gpu=1)
    return functools.partial(workers.ppo_loss, config=config)


@pytest.mark.parametrize("padded", [False, True], ids=["v1", "v0"])
def test_each_gradient_step_of_verls_worker_is_posted_with_all_three_log_probs(
    real: Any, monitor: Any, workers: Any, padded: bool
) -> None:
    plain, actor = training(real, workers), training(real, workers)
    plain.set_loss_fn(loss(real, workers))
    plain.train_mini_batch(batch(real, padded=padded))
    watch(lambda: monitor)
    actor.set_loss_fn(loss(real, workers))
    actor.loss_fn.synced = 6
    given = batch(real, padded=padded)
    actor.train_mini_batch(given)
    assert torch.equal(actor.engine.shift, plain.engine.shift) and float(plain.engine.shift.detach()) != 0.0
    assert actor.loss_fn.keywords["config"] is not None
    numbers = [(call["step"], call["minibatch"], call["minibatches"], call["policy_version"]) for call in monitor.calls]
    assert numbers == [(7, 0, 4, 6), (7, 1, 4, 6), (7, 2, 4, 6), (7, 3, 4, 6)]
    sent = [
        {name: [np.asarray(v)[np.asarray(m)] for v, m in zip(call[name], call["mask"], strict=True)] for name in SENT}
        for call in monitor.calls
    ]
    for name in ("sampling_logprobs", "old_logprobs", "advantages"):
        rows = given[FIELDS[name]]
        for index, (row, count) in enumerate(zip(rows.unbind(), ANSWERS, strict=True)):
            np.testing.assert_array_equal(sent[index // 2][name][index % 2], row[:count].numpy())
    assert [[row.tolist() for row in half["policy_versions"]] for half in sent[:2]] == [
        [[6] * 3, [-1]], [[5] * 2, [6] * 4],
    ]  # fmt: skip
    first, later = sent[0], sent[2]
    np.testing.assert_array_equal(first["logprobs"][0], first["old_logprobs"][0])
    moved = later["logprobs"][0] - later["old_logprobs"][0]
    assert np.ptp(moved) < 1e-6 and abs(moved[0]) > 1e-3


def test_bypass_under_v1_is_noticed_by_mu_being_pi_old_to_the_bit(
    real: Any, monitor: Any, workers: Any, caplog: pytest.LogCaptureFixture
) -> None:
    watch(lambda: monitor)
    actor = training(real, workers)
    actor.set_loss_fn(loss(real, workers))
    with caplog.at_level(logging.WARNING, "offpolicy_monitor"):
        actor.train_mini_batch(batch(real, bypass=True))
    assert [("old_logprobs" in call, "sampling_logprobs" in call) for call in monitor.calls] == [(False, True)] * 4
    assert [record.getMessage() for record in caplog.records if "offpolicy" in record.name] == [BYPASSED]


def test_a_step_that_is_left_out_and_a_rank_that_is_not_the_source_shift_nothing(
    real: Any, monitor: Any, workers: Any
) -> None:
    watch(lambda: monitor)
    actor = training(real, workers)
    actor.set_loss_fn(loss(real, workers))
    for synced, finite, source in ((3, True, True), (4, False, True), (5, True, False), (6, True, True)):
        actor.loss_fn.synced, actor.engine.finite, actor.engine.source = synced, finite, source
        actor.train_mini_batch(batch(real))
    steps = [call["step"] for call in monitor.calls]
    assert steps == [4] * 4 + [5] * 4 + [7] * 4
    assert [len(call["logprobs"]) for call in monitor.calls] == [2] * 12


def test_the_steps_number_comes_from_the_weights_that_verl_hands_to_the_engines(
    real: Any, monitor: Any, workers: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    handed: list[tuple[Any, ...]] = []

    async def update(worker: Any, global_steps: int | None = None, mode: str = "auto") -> None:
        handed.append((global_steps, mode))

    assert asyncio.iscoroutinefunction(workers.ActorRolloutRefWorker.update_weights)
    monkeypatch.setattr(workers.ActorRolloutRefWorker, "update_weights", update)
    watch(lambda: monitor)
    worker = workers.ActorRolloutRefWorker.__new__(workers.ActorRolloutRefWorker)
    rollout = {"name": "vllm", "logprobs_mode": "raw_logprobs", "temperature": 0.7}
    worker.config, worker.actor = SimpleNamespace(rollout=rollout), training(real, workers)
    worker.actor.set_loss_fn(loss(real, workers))
    for step in (40, None, 41):
        asyncio.run(worker.update_weights(global_steps=step, mode="naive"))
        worker.actor.train_mini_batch(batch(real))
    assert handed == [(40, "naive"), (None, "naive"), (41, "naive")]
    told = [(call["step"], call["minibatch"], call["policy_version"]) for call in monitor.calls]
    assert told == [(41, n, 40) for n in range(8)] + [(42, n, 41) for n in range(4)]
    [said] = [record.getMessage() for record in caplog.records if "offpolicy" in record.name]
    assert "pi_old and pi are after the sampling temperature of 0.7, mu is before it" in said


def test_the_critics_loss_is_left_alone(real: Any, monitor: Any, workers: Any) -> None:
    watch(lambda: monitor)
    critic = training(real, workers)
    critic.config.model_type = "value_model"
    critic.set_loss_fn(workers.ppo_loss)
    assert critic.loss_fn is workers.ppo_loss and not isinstance(critic.loss_fn, Watched)
