"""AReaL's own actor, loss and packing around an engine of one matrix; its FSDP engine is started by torchrun alone."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from offpolicy_monitor.client.adapters.areal import watch

ACTOR = {"use_decoupled_loss": True, "prox_logp_method": "recompute", "ppo_n_minibatches": 2, "kl_ctl": 0.0}
#: Of two prompts of two tokens with answers of up to four, and the version that sampled each token.
SIZES = (6, 3, 5, 4)
PROMPT, LENGTH, VOCABULARY = 2, 6, 11


class Engine:
    """What the actor and the adapter call of an engine; sequences are packed by AReaL, and the model is a matrix."""

    data_parallel_rank, data_parallel_world_size = 0, 1

    def __init__(self, config: Any, pack: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        self.config, self.pack, self.version, self.seen = config, pack, 3, list[dict[str, Any]]()
        self.weights = torch.randn(VOCABULARY, VOCABULARY, generator=torch.Generator().manual_seed(5)).requires_grad_()
        self.optimizer = torch.optim.SGD([self.weights], lr=0.5)

    def train(self) -> None: ...

    def is_data_parallel_head(self) -> bool:
        return True

    def get_version(self) -> int:
        return self.version

    def logprobs(self, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Of the next token at each position, and the entropy."""
        scores = self.weights[tokens].log_softmax(-1)
        behind = tokens.roll(-1, dims=-1)
        return scores.gather(-1, behind[..., None]).squeeze(-1), -(scores.exp() * scores).sum(-1)

    def train_batch(self, input_: Any, loss_fn: Any, loss_weight_fn: Any) -> dict[str, float]:
        packed = self.pack(input_)
        logprobs, entropy = self.logprobs(packed["input_ids"])
        self.seen.append({**packed, "pi": logprobs.detach().clone()})
        loss = loss_fn(logprobs, entropy, packed, vocab_min_logits=None, vocab_max_logits=None)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return {"loss": loss.item()}


def rollout(engine: Engine) -> dict[str, Any]:
    """A padded batch as AReaL's workflows give it, with what `compute_logp` adds; mu is a little off."""
    draws = torch.Generator().manual_seed(7)
    place, sizes = torch.arange(LENGTH).expand(4, LENGTH), torch.tensor(SIZES)[:, None]
    tokens = torch.randint(VOCABULARY, (4, LENGTH), generator=draws)
    with torch.no_grad():
        old = engine.logprobs(tokens)[0]
    return {
        "input_ids": tokens,
        "attention_mask": place < sizes,
        "loss_mask": ((place >= PROMPT) & (place < sizes)).int(),
        "logprobs": old.roll(1, dims=-1) + 0.1 * torch.rand(4, LENGTH, generator=draws),
        "prox_logp": old,
        "versions": torch.where(place < PROMPT, -1, 2 + place % 2),
        "rewards": torch.tensor([1.0, -1.0, 0.5, 0.0]),
    }


@pytest.mark.filterwarnings("ignore")
def test_the_weights_are_the_same_and_every_gradient_step_posts_what_the_actor_computed(
    real: Any, monitor: Any
) -> None:
    real("areal.trainer", bare="areal.trainer")
    actors, pack = real("areal.trainer.ppo.actor"), real("areal.utils.data").pack_tensor_dict
    config = real("areal.api.cli_args").PPOActorConfig(experiment_name="a", trial_name="b", path="", **ACTOR)

    def trained(engine: Engine) -> Engine:
        actor = actors.PPOActor(config, engine)
        actor._ppo_update(actor._compute_advantages(rollout(engine)))
        return engine

    plain, seen = trained(Engine(config, pack)), trained(watch(Engine(config, pack), monitor))
    assert torch.equal(plain.weights, seen.weights)
    keys = [[call[name] for name in ("step", "minibatch", "policy_version", "shard")] for call in monitor.calls]
    assert keys == [[3, 0, 3, 0], [3, 1, 3, 0]]
    names = {"sampling_logprobs": "logprobs", "old_logprobs": "prox_logp", "logprobs": "pi", "advantages": "advantages"}
    for call, data in zip(monitor.calls, seen.seen, strict=True):
        sizes = data["cu_seqlens"].diff().tolist()
        for name, key in {**names, "mask": "loss_mask"}.items():
            for row, packed in zip(call[name], data[key].split(sizes), strict=True):
                assert torch.equal(row.float(), packed[:-1].float()), name
        for row, mask, packed in zip(call["policy_versions"], call["mask"], data["versions"].split(sizes), strict=True):
            assert torch.equal(row, packed[1:]) and (row[mask.bool()] >= 2).all()
    moved = [abs(_mean(call, "logprobs") - _mean(call, "old_logprobs")) for call in monitor.calls]
    assert moved[0] < 1e-6 < moved[1]


def _mean(call: dict[str, Any], name: str) -> float:
    """Over the tokens of the answers."""
    return float(torch.cat([row[mask.bool()] for row, mask in zip(call[name], call["mask"], strict=True)]).mean())
