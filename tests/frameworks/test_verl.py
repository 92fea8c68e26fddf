"""verl's adapter with verl's own policy-loss registry, configuration and batch."""

from typing import Any

import numpy as np
import torch
from offpolicy_monitor.client.adapters.verl import FIELDS, VERSIONS, log_rollout, watched_loss


def given(tokens: dict[str, torch.Tensor], shift: torch.Tensor, config: Any) -> dict[str, Any]:
    """The arguments as verl's actor passes them."""
    return {
        "old_log_prob": tokens["old_logprobs"],
        "log_prob": tokens["old_logprobs"] + shift,
        "advantages": tokens["advantages"],
        "response_mask": tokens["mask"],
        "loss_agg_mode": "token-mean",
        "config": config,
        "rollout_is_weights": None,
    }


def test_a_loss_of_the_registry_is_the_same_and_posts_its_tensors(real: Any, monitor: Any, tokens: Any) -> None:
    algorithms = real("verl.trainer.ppo.core_algos")
    config = real("verl.workers.config").ActorConfig(strategy="fsdp", rollout_n=1, ppo_micro_batch_size_per_gpu=1)
    vanilla = algorithms.get_policy_loss_fn("vanilla")
    algorithms.register_policy_loss("vanilla_watched")(watched_loss(vanilla, monitor))
    shift = torch.nn.Parameter(torch.full((4, 6), 0.125))
    plain, metrics = vanilla(**given(tokens, shift, config))
    (expected,) = torch.autograd.grad(plain, shift)
    seen, told = algorithms.get_policy_loss_fn("vanilla_watched")(**given(tokens, shift, config))
    seen.backward()
    assert torch.equal(seen, plain) and told == metrics and shift.grad is not None and torch.equal(shift.grad, expected)
    entered = {name: tokens[name] for name in ("old_logprobs", "advantages", "mask")}
    entered["logprobs"] = (tokens["old_logprobs"] + shift).detach().clone()
    torch.optim.SGD([shift]).step()
    (call,) = monitor.calls
    assert (call["step"], call["minibatch"], "sampling_logprobs" in call) == (1, 1, False)
    for name, tensor in entered.items():
        assert torch.equal(torch.stack(call[name]), tensor), name


def test_a_batch_of_the_trainer_is_posted_field_by_field(real: Any, monitor: Any, tokens: Any) -> None:
    proto = real("verl.protocol").DataProto
    tensors = {FIELDS[name]: tensor for name, tensor in tokens.items()}
    synced = np.array([5, 6, None, 6], object)
    log_rollout(monitor, proto.from_dict(tensors=tensors, non_tensors={VERSIONS: synced}), step=7)
    (call,) = monitor.calls
    assert (call["step"], call["policy_version"], call["policy_versions"].tolist()) == (7, 6, [5, 6, -1, 6])
    for name, tensor in tokens.items():
        assert torch.equal(call[name], tensor), name


def test_a_batch_that_went_through_the_bypass_mode_is_not_posted(real: Any, monitor: Any, tokens: Any) -> None:
    batch = real("verl.protocol").DataProto.from_dict(
        tensors={FIELDS[name]: tokens[name] for name in ("sampling_logprobs", "advantages", "mask")}
    )
    create = real("omegaconf").OmegaConf.create
    policy_loss = create({"loss_mode": "vanilla", "rollout_correction": None})
    bypass = real("verl.trainer.ppo.rollout_corr_helper").apply_bypass_mode
    bypass(batch, create({"loss_type": "ppo_clip"}), policy_loss)
    log_rollout(monitor, batch, step=8)
    assert torch.equal(batch.batch["old_log_probs"], tokens["sampling_logprobs"]) and monitor.calls == []
