"""miles' adapter, where miles differs from slime: its parallel state, its module of losses, its layouts of rows.

miles does not install here, so modules that hold what the adapter asks of them stand in their place.
"""

import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from offpolicy_monitor.client.adapters import miles

from tests.client.adapters.modules import stand_in
from tests.client.adapters.recorder import Recorder

MU = [torch.tensor([-0.5, -1.25]), torch.tensor([-2.25, -0.75, -0.5])]
OLD = [torch.tensor([-0.25, -1.5]), torch.tensor([-2.25, -0.25, -0.25])]
PI = torch.tensor([-0.125, -1.5, -2.0, -0.25, -0.125])
BATCH = {
    "rollout_log_probs": MU,
    "log_probs": OLD,
    "loss_masks": [torch.tensor([1, 1]), torch.tensor([1, 0, 1])],
    "advantages": [torch.full((2,), 1.0), torch.full((3,), -1.0)],
    "total_lengths": [5, 4],
    "response_lengths": [2, 3],
    "max_seq_lens": [8, 8],
}
ARGS = SimpleNamespace(use_tis=False, start_rollout_id=0, rollout_temperature=1.0, qkv_format="bshd")


def group(rank: int = 0, size: int = 1) -> SimpleNamespace:
    return SimpleNamespace(rank=rank, size=size)


def policy_loss(args: Any, batch: Any, logits: torch.Tensor, reduce: Any) -> tuple[torch.Tensor, dict[str, Any]]:
    """As miles' loss does: the function looked up in its module gives a dict, without entropy where none is wanted."""
    rows = sys.modules[miles.LOSSES[0]].get_log_probs_and_entropy(logits)["log_probs"]
    return reduce(torch.cat(rows)), {}


@pytest.fixture
def state(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """The parallel state of data-parallel rank 1 of 2, to be changed by the test."""
    state = SimpleNamespace(is_pp_last_stage=True, tp=group(), cp=group(), effective_dp=group(1, 2))
    modules: dict[str, dict[str, Any]] = {
        miles.PARALLEL: {"get_parallel_state": lambda: state},
        miles.GATHER: {
            "all_gather_with_cp": lambda row, total, response, layout, width: torch.full(
                (response,), total + width if layout == "bshd" else 0.0
            )
        },
        miles.LOSSES[0]: {
            "policy_loss_function": policy_loss,
            "get_log_probs_and_entropy": lambda logits: {"log_probs": list(logits.split([2, 3]))},
            "vanilla_tis_function": lambda args, *, pg_loss, loss_masks, **named: (pg_loss / 2, loss_masks, {}),
        },
    }
    stand_in(monkeypatch, modules)
    yield state
    miles.use(Recorder())


def trained(args: SimpleNamespace = ARGS, **changed: Any) -> list[dict[str, Any]]:
    """What is posted of one gradient step, the second of rollout 9."""
    recorder = Recorder()
    miles.use(recorder)
    miles.before_step(args, 9, 1, [SimpleNamespace(role="actor")], None, None)
    loss, _ = miles.loss(args, BATCH | changed, PI.clone().requires_grad_(), torch.sum)
    loss.backward()
    torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))]).step()
    return recorder.calls


def test_the_loss_posts_all_three_log_probs_of_its_gradient_step(state: SimpleNamespace) -> None:
    (call,) = trained()
    assert [call[name] for name in ("step", "minibatch", "shard", "shards", "policy_version")] == [9, 1, 1, 2, 9]
    rows = {"logprobs": PI, "sampling_logprobs": torch.cat(MU), "old_logprobs": torch.cat(OLD)}
    assert all(torch.equal(torch.cat(call[name]), values) for name, values in rows.items())
    assert "entropy" not in call and [len(row) for row in call["advantages"]] == [2, 3]


def test_without_a_recompute_pi_is_not_sent_as_pi_old_too(state: SimpleNamespace) -> None:
    (call,) = trained(log_probs=None)  # as under --skip-actor-forward-only
    assert call.keys() & {"sampling_logprobs", "old_logprobs", "logprobs"} == {"sampling_logprobs", "logprobs"}


@pytest.mark.parametrize(
    "elsewhere", [{"is_pp_last_stage": False}, {"tp": group(1, 2)}, {"cp": group(1, 2)}], ids=lambda of: next(iter(of))
)
def test_one_rank_of_a_replica_posts(state: SimpleNamespace, elsewhere: dict[str, Any]) -> None:
    vars(state).update(elsewhere)
    assert trained() == []


def test_rows_that_context_parallelism_cut_are_put_together_in_their_layout(state: SimpleNamespace) -> None:
    state.cp = group(0, 2)
    (call,) = trained()
    assert [row.tolist() for row in call["logprobs"]] == [[13.0, 13.0], [12.0, 12.0, 12.0]]


@pytest.mark.parametrize(("use_tis", "loss"), [(False, 4.0), (True, 2.0)])
def test_the_correction_is_miles_own_and_every_micro_batch_is_posted(
    state: SimpleNamespace, use_tis: bool, loss: float
) -> None:
    recorder, args = Recorder(), SimpleNamespace(**vars(ARGS) | {"use_tis": use_tis})
    miles.use(recorder)
    named = {"train_log_probs": OLD, "rollout_log_probs": MU, "total_lengths": [5, 4], "response_lengths": [2, 3]}
    corrected, _, _ = miles.tis(
        args=args,
        pg_loss=torch.tensor(4.0),
        loss_masks=BATCH["loss_masks"],
        parallel_state=state,
        max_seq_lens=None,
        **named,
    )
    torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))]).step()
    assert float(corrected) == loss
    assert [torch.cat(call["old_logprobs"]).tolist() for call in recorder.calls] == [torch.cat(OLD).tolist()]
