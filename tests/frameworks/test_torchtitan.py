"""torchtitan's adapter with its own losses, whole and in chunks; its trainer needs Monarch, so it is made here."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from offpolicy_monitor.client.adapters.torchtitan import watch

# Its own __init__ registers models with vLLM.
RL = "torchtitan.experiments.rl"
POSITIONS = torch.tensor([[0, 1, 2, 0, 1, 0], [0, 1, 2, 3, 4, 5]])


class Model(torch.nn.Module):
    """A table of logits in the place of a model, whose head a loss in chunks calls itself."""

    def __init__(self, skips_head: bool) -> None:
        super().__init__()
        table = torch.randn(9, 9, generator=torch.Generator().manual_seed(3))
        self.table, self.skips_head = torch.nn.Embedding(9, 9, _weight=table), skips_head
        self.lm_head = torch.nn.Linear(9, 9, bias=False)
        torch.nn.init.eye_(self.lm_head.weight)

    def forward(self, token_ids: torch.Tensor, *, attention_masks: Any, positions: torch.Tensor) -> Any:
        hidden = self.table(token_ids)
        return hidden if self.skips_head else self.lm_head(hidden)


def trainer(loss: Any, chunked: bool) -> Any:
    """What `PolicyTrainer` has of what the adapter asks."""
    model = Model(chunked)
    if chunked:
        loss.set_lm_head(model.lm_head)
    optimizers = torch.optim.SGD(model.parameters(), 0.1)
    dims = SimpleNamespace(get_optional_mesh=lambda name: None)
    parts = {"loss_fn": loss, "model": model, "optimizers": optimizers, "parallel_dims": dims}
    return SimpleNamespace(**parts, policy_version=3, dp_rank=0, dp_size=1)


def stepped(made: Any, tokens: dict[str, torch.Tensor], ids: torch.Tensor) -> tuple[torch.Tensor, dict[str, Any]]:
    """`forward_backward` and `optim_step` of one microbatch; the table afterwards."""
    pred = made.model(ids[:, :-1], attention_masks=None, positions=POSITIONS)
    inputs = {"generator_logprobs": tokens["sampling_logprobs"][:2], "advantages": tokens["advantages"][:2]}
    loss, metrics = made.loss_fn(pred, ids[:, 1:], 5.0, **inputs, loss_mask=tokens["mask"][:2])
    loss.backward()
    made.optimizers.step()
    return made.model.table.weight.detach().clone(), {name: value.item() for name, value in metrics.items()}


@pytest.mark.parametrize("chunked", [False, True])
def test_a_loss_is_the_same_and_posts_what_it_scored(real: Any, monitor: Any, tokens: Any, chunked: bool) -> None:
    losses = real("torchtitan.experiments.rl.losses", bare=RL)
    wrapper = real("torchtitan.components.loss").ChunkedLossWrapper

    def loss() -> Any:
        config = losses.GRPOLoss.Config(clip_eps=0.2)
        return wrapper.Config(num_chunks=3, loss_fn=config).build() if chunked else config.build()

    ids = torch.randint(0, 9, (2, 7), generator=torch.Generator().manual_seed(5))
    plain, made = stepped(trainer(loss(), chunked), tokens, ids), trainer(loss(), chunked)
    pi = torch.log_softmax(made.model.table(ids[:, :-1]), -1).gather(-1, ids[:, 1:, None])[..., 0].detach()
    seen = stepped(watch(made, monitor), tokens, ids)
    assert torch.equal(seen[0], plain[0]) and seen[1] == plain[1]
    (call,) = monitor.calls
    assert (call["step"], call["policy_version"]) == (4, 3) and [len(row) for row in call["mask"]] == [3, 2, 1, 6]
    assert torch.allclose(torch.cat(call["logprobs"]), pi.reshape(-1), atol=1e-6) and "entropy" in call
    for name in ("sampling_logprobs", "advantages", "mask"):
        assert torch.equal(torch.cat(call[name]), tokens[name][:2].reshape(-1)), name
