"""OpenRLHF's adapter with OpenRLHF's own loss and experience; its trainer needs vLLM, so its calls are made here."""

from types import SimpleNamespace
from typing import Any

import torch
from offpolicy_monitor.client.adapters.openrlhf import watch


class Mesh(dict[str, Any]):
    """A device mesh of one rank."""

    def __missing__(self, name: str) -> SimpleNamespace:
        return SimpleNamespace(get_local_rank=lambda: 0, size=lambda: 1)


class Trainer:
    """The part of ActorPPOTrainer that the adapter stands around, with the real loss in it."""

    def __init__(self, loss: Any, pi: torch.Tensor) -> None:
        self.actor_loss_fn, self.pi = loss, pi
        self.args = SimpleNamespace(train=SimpleNamespace(dynamic_batch_enable=False))
        self.strategy = SimpleNamespace(accumulated_gradient=1, ds_device_mesh=Mesh(), save_model=lambda *_: None)

    def training_step(self, experience: Any, kl_ctl: float, step: int) -> Any:
        # Positional and named as OpenRLHF passes them.
        return self.actor_loss_fn(
            self.pi,
            experience.action_log_probs,
            experience.advantages,
            action_mask=experience.action_mask,
            rollout_log_probs=experience.rollout_log_probs,
        )

    def broadcast_to_vllm(self) -> None:
        """The engines are not here."""

    def ppo_train(self, experience: Any) -> Any:
        return self.training_step(experience, 0.0, 0)


def test_the_loss_is_the_same_and_posts_the_experience(real: Any, monitor: Any, tokens: Any) -> None:
    # Its package's own __init__ imports flash_attn, which needs a GPU.
    loss = real("openrlhf.models.loss", bare="openrlhf.models").PolicyLoss(is_correction_level="token")
    experience = real("openrlhf.trainer.ppo_utils.experience").Experience(
        action_log_probs=tokens["old_logprobs"],
        rollout_log_probs=tokens["sampling_logprobs"],
        advantages=tokens["advantages"],
        action_mask=tokens["mask"],
    )
    pi = (tokens["old_logprobs"] + 0.125).requires_grad_()
    plain = Trainer(loss, pi).ppo_train(experience)
    (expected,) = torch.autograd.grad(plain[0], pi)
    seen = watch(Trainer(loss, pi), monitor, first_step=5).ppo_train(experience)
    seen[0].backward()
    assert all(torch.equal(one, other) for one, other in zip(seen, plain, strict=True))
    assert pi.grad is not None and torch.equal(pi.grad, expected)
    (call,) = monitor.calls
    assert (call["step"], call["minibatch"], call["shard"], call["shards"]) == (5, 0, 0, 1)
    for name, tensor in {**tokens, "logprobs": pi.detach()}.items():
        assert torch.equal(torch.stack(call[name]), tensor), name
