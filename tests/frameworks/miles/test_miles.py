"""miles' own loss on logits of a tiny vocabulary, with its parallel state, called by its `loss_function`."""

import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from offpolicy_monitor.client.adapters import miles
from offpolicy_monitor.client.adapters.shared.made import Nowhere

# miles compiles its loss, which takes a minute and changes nothing here.
os.environ["TORCHDYNAMO_DISABLE"] = "1"

HOOKS = "offpolicy_monitor.client.adapters.miles"
# Prompts of two tokens and of one, answers of three and of two; the second answer has a token that a tool wrote.
TOTAL, RESPONSE = [5, 3], [3, 2]
OPTIONS: dict[str, Any] = {
    "advantage_estimator": "grpo", "allgather_cp": False, "calculate_per_token_loss": False, "entropy_coef": 0.25,
    "eps_clip": 0.2, "eps_clip_high": 0.28, "get_mismatch_metrics": False, "global_batch_size": 2,
    "log_probs_chunk_size": -1, "loss_type": "policy_loss", "n_samples_per_prompt": 2, "qkv_format": "thd",
    "recompute_loss_function": False, "rollout_batch_size": 2, "rollout_temperature": 0.8, "start_rollout_id": 0,
    "tis_clip": 2.0, "tis_clip_low": 0.0, "true_on_policy_mode": False, "use_dynamic_global_batch_size": False,
    "use_kl_loss": False, "use_opsm": False, "use_rollout_logprobs": False, "use_tis": False,
    "custom_loss_function_path": f"{HOOKS}.loss", "custom_tis_function_path": None,
}  # fmt: skip


@pytest.fixture(autouse=True)
def _alone(real: Any, monitor: Any, tmp_path: Path) -> Iterator[None]:
    """miles' parallel state of one process."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    parallel = real("miles.backends.training_utils.parallel")
    one = parallel.GroupInfo(0, 1, torch.distributed.group.WORLD)
    parallel.set_parallel_state(parallel.ParallelState(one, one, one, one, one, one, one))
    miles.use(monitor)
    yield
    miles.use(Nowhere())
    torch.distributed.destroy_process_group()


def batch(part: slice = slice(None)) -> dict[str, Any]:
    """Sequences as miles' micro-batches have them."""
    draws = torch.Generator().manual_seed(3)
    values = {name: [-torch.rand(size, generator=draws) for size in RESPONSE] for name in ("log_probs", "other")}
    every: dict[str, list[Any]] = {
        "unconcat_tokens": [torch.tensor([1, 4, 2, 0, 3]), torch.tensor([5, 1, 4])],
        "total_lengths": TOTAL,
        "response_lengths": RESPONSE,
        "loss_masks": [torch.tensor([1, 1, 1]), torch.tensor([1, 0])],
        "advantages": [torch.full((3,), 0.5), torch.full((2,), -1.0)],
        "log_probs": values["log_probs"],
        "rollout_log_probs": [old + 0.125 * other for old, other in zip(*values.values(), strict=True)],
    }
    return {name: rows[part] for name, rows in every.items()}


def logits() -> torch.Tensor:
    return torch.randn(1, sum(TOTAL), 6, generator=torch.Generator().manual_seed(5))


def trained(real: Any, part: slice = slice(None), **changed: Any) -> tuple[Any, Any, Any]:
    """Loss, gradient and metrics of one micro-batch, as miles' forward step makes them."""
    losses, args = real("miles.backends.training_utils.loss"), SimpleNamespace(**OPTIONS | changed)
    given = batch(part)
    of = logits()[:, :5] if part == slice(0, 1) else logits()[:, 5:] if part == slice(1, 2) else logits()
    of = of.clone().requires_grad_()
    loss, _, log = losses.loss_function(args, given, 1, of, apply_megatron_loss_scaling=True)
    loss.backward()
    return loss.detach(), of.grad, dict(zip(log["keys"], log["values"][1:].tolist(), strict=True))


def begun(step: int) -> None:
    """What miles' `train_one_step` calls by the hook's path."""
    miles.before_step(SimpleNamespace(**OPTIONS), 7, step, [SimpleNamespace(role="actor")], None, None)


def optimizer_steps() -> None:
    torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))]).step()


def expected_pi(real: Any) -> list[torch.Tensor]:
    """pi by hand: log-softmax of the logits over the temperature, of the token behind each position."""
    scores, first, found = (logits()[0] / OPTIONS["rollout_temperature"]).log_softmax(-1), 0, []
    for tokens, total, response in zip(batch()["unconcat_tokens"], TOTAL, RESPONSE, strict=True):
        places = torch.arange(first + total - response - 1, first + total - 1)
        found.append(scores[places].gather(-1, tokens[-response:, None]).squeeze(-1))
        first += total
    return found


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("recompute", [False, True])
def test_the_loss_is_miles_own_and_posts_all_three_log_probs_of_each_gradient_step_once(
    real: Any, monitor: Any, recompute: bool
) -> None:
    plain = trained(real)
    for step in (0, 1):
        begun(step)
        seen = trained(real, loss_type="custom_loss", recompute_loss_function=recompute)
        optimizer_steps()
        assert torch.equal(seen[0], plain[0]) and torch.equal(seen[1], plain[1]) and seen[2] == plain[2]
    assert [(call["step"], call["minibatch"], call["shard"], call["shards"]) for call in monitor.calls] == [
        (7, 0, 0, 1),
        (7, 1, 0, 1),
    ]
    given = batch()
    for call in monitor.calls:
        for name, rows in {
            "sampling_logprobs": given["rollout_log_probs"], "old_logprobs": given["log_probs"],
            "advantages": given["advantages"], "mask": given["loss_masks"],
        }.items():  # fmt: skip
            assert all(torch.equal(mine, row) for mine, row in zip(call[name], rows, strict=True)), name
        for mine, row in zip(call["logprobs"], expected_pi(real), strict=True):
            assert torch.allclose(mine, row, atol=1e-5) and not mine.requires_grad
        assert [len(row) for row in call["entropy"]] == RESPONSE


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("use_tis", [False, True])
def test_the_correction_is_miles_own_and_posts_mu_and_pi_old_of_all_micro_batches(
    real: Any, monitor: Any, use_tis: bool
) -> None:
    begun(0)
    for part in (slice(0, 1), slice(1, 2)):
        plain = trained(real, part, use_tis=use_tis)
        seen = trained(real, part, use_tis=use_tis, get_mismatch_metrics=True, custom_tis_function_path=f"{HOOKS}.tis")
        assert torch.equal(seen[0], plain[0]) and torch.equal(seen[1], plain[1])
        assert {name: seen[2][name] for name in plain[2]} == plain[2]
    optimizer_steps()
    (call,) = monitor.calls
    assert (call["step"], call["minibatch"]) == (7, 0) and "logprobs" not in call
    for name, rows in (("sampling_logprobs", "rollout_log_probs"), ("old_logprobs", "log_probs")):
        assert all(torch.equal(mine, row) for mine, row in zip(call[name], batch()[rows], strict=True))
