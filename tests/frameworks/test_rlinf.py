"""RLinf's adapter with RLinf's own actor worker: its gradient step, forward and loss. The model is a table."""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from offpolicy_monitor.client.adapters.rlinf import watched

ALGORITHM = {
    "sampling_params": {"temperature": 0.5},
    "ratio_clip_eps": 0.2,
    "loss_type": "actor",
    "n_minibatches": 1,
    "importance_sampling_fix": True,
    "importance_sampling_clip": 2.0,
}


@pytest.fixture
def actor(real: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module of the worker, on the CPU and in a process group of one."""
    # RLinf 0.3.0 imports a class that transformers 5 has no more, for models that read pictures.
    monkeypatch.setattr(real("transformers"), "AutoModelForVision2Seq", None, raising=False)
    module = real("rlinf.workers.actor.fsdp_actor_worker")
    monkeypatch.setattr(module.Worker, "torch_device_type", "cpu")
    monkeypatch.setattr(module.Worker, "torch_platform", SimpleNamespace(current_device=lambda: "cpu"))
    torch.distributed.init_process_group("gloo", init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
    yield module
    torch.distributed.destroy_process_group()


def made(worker: Any, real: Any) -> Any:
    """A worker as its set-up leaves it, with a table of logits for a model."""
    made = object.__new__(worker)
    model = torch.nn.Embedding(9, 9, _weight=torch.randn(9, 9, generator=torch.Generator().manual_seed(3)))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    strategy = SimpleNamespace(clip_grad_norm_=lambda model: 0.5, before_micro_batch=lambda *_, **named: nullcontext())
    made.__dict__ |= {
        "cfg": real("omegaconf").OmegaConf.create({"algorithm": ALGORITHM, "rollout": {"rollout_backend": "sglang"}}),
        "model": lambda input_ids, **named: SimpleNamespace(logits=model(input_ids)),
        "optimizer": optimizer, "optimizer_steps": 0, "critic_warmup_steps": 0, "_strategy": strategy,
        "grad_scaler": torch.amp.GradScaler("cpu", enabled=False), "lr_scheduler": SimpleNamespace(step=lambda: None),
        "amp_context": nullcontext(), "micro_batch_size": 2, "response_len": 3, "n_mini_batches": 1,
        "enable_dynamic_batch_size": False, "variable_seq_lengths": False, "max_tokens_per_mbs": 0,
        "entropy_op_type": "torch", "task_type": "reasoning", "calculate_entropy": True,
        "calculate_entropy_loss": False, "lr_sched_sync_with_optim": True,
        "kl_beta": 0.0, "_rank": 0, "_world_size": 1, "table": model,
        "loss_agg_func": real("rlinf.utils.utils").get_loss_agg_func("token-mean"),
    }  # fmt: skip
    return made


def batch() -> dict[str, torch.Tensor]:
    """Four prompts of two tokens with answers of up to three."""
    draws = torch.Generator().manual_seed(5)
    mask = torch.arange(5) < torch.tensor([[5], [4], [3], [5]])
    return {
        "input_ids": torch.randint(0, 9, (4, 5), generator=draws),
        "attention_mask": mask,
        "position_ids": torch.arange(5).expand(4, 5),
        "response_mask": mask & (torch.arange(5) > 1),
        "rollout_logprobs": -2 * torch.rand(4, 3, generator=draws),
        "recomputed_logprobs": -2 * torch.rand(4, 3, generator=draws),
        "advantages": torch.randn(4, 3, generator=draws),
    }


def test_its_gradient_step_is_the_same_and_posts_what_its_loss_is_computed_from(
    real: Any, monitor: Any, actor: Any
) -> None:
    plain, seen = made(actor.FSDPActor, real), made(watched(actor.FSDPActor, lambda: monitor), real)
    logits = torch.log_softmax(seen.table(batch()["input_ids"]) / 0.5, -1).detach()
    assert plain.training_step(batch()) == seen.training_step(batch())
    assert torch.equal(plain.table.weight, seen.table.weight)
    (call,) = monitor.calls
    given = batch()
    answers = given["input_ids"][:, 2:, None]
    assert torch.allclose(torch.stack(call["logprobs"]), logits[:, 1:-1].gather(-1, answers)[..., 0], atol=1e-6)
    assert torch.allclose(torch.stack(call["entropy"]), -(logits.exp() * logits).sum(-1)[:, 1:-1], atol=1e-6)
    assert torch.equal(torch.stack(call["mask"]), given["response_mask"][:, 2:])
    for name, key in (("sampling_logprobs", "rollout_logprobs"), ("old_logprobs", "recomputed_logprobs")):
        assert torch.equal(torch.stack(call[name]), given[key]), name
    assert torch.equal(torch.stack(call["advantages"]), given["advantages"])


def test_its_workers_get_the_subclass_pickled(real: Any, monitor: Any, actor: Any) -> None:
    pickled = real("ray.cloudpickle")
    came = pickled.loads(pickled.dumps(watched(actor.FSDPActor, lambda: monitor)))
    assert came.__name__ == "FSDPActor" and issubclass(came, actor.FSDPActor) and came is not actor.FSDPActor
