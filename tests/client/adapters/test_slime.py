"""slime's adapter, driven as slime drives it: functions called with its arguments, over modules of its names.

Megatron and slime do not install here, so modules that hold what the adapter asks of them stand in their place.
"""

import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from offpolicy_monitor.client.adapters import slime
from offpolicy_monitor.client.adapters.shared.slime_hooks import BEFORE_TEMPERATURE, steps_of
from torch.utils.checkpoint import checkpoint

from tests.client.adapters.modules import stand_in
from tests.client.adapters.recorder import Poster, Recorder
from tests.fixtures.application import Client

MU = [torch.tensor([-0.5, -1.25]), torch.tensor([-2.25, -0.75, -0.5])]
OLD = [torch.tensor([-0.25, -1.5]), torch.tensor([-2.25, -0.25, -0.25])]
MASKS = [torch.tensor([1, 1]), torch.tensor([1, 0, 1])]
LENGTHS = {"total_lengths": [5, 4], "response_lengths": [2, 3]}
DATA = {
    "rollout_log_probs": MU,
    "log_probs": OLD,
    "loss_masks": MASKS,
    "advantages": [torch.full((2,), 1.0), torch.full((3,), -1.0)],
    **LENGTHS,
}


@pytest.fixture
def ranks(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """The parallel state of one process, to be changed by the test; data-parallel rank 1 of 2."""
    monkeypatch.delenv(BEFORE_TEMPERATURE, raising=False)
    state = SimpleNamespace(last_stage=True, tensor=0, context=0, contexts=1)
    answers: dict[str, Any] = {
        "is_pipeline_last_stage": lambda: state.last_stage,
        "get_tensor_model_parallel_rank": lambda: state.tensor,
        "get_context_parallel_rank": lambda: state.context,
        "get_context_parallel_world_size": lambda: state.contexts,
        "get_data_parallel_rank": lambda with_context_parallel: 1,
        "get_data_parallel_world_size": lambda with_context_parallel: 2,
    }
    modules = {
        slime.PARALLEL: answers,
        slime.GATHER: {"all_gather_with_cp": lambda row, total, response: torch.full((response,), float(total))},
        slime.LOSSES[0]: {
            "vanilla_tis_function": halved,
            "get_log_probs_and_entropy": log_probs_and_entropy,
            "policy_loss_function": policy_loss,
        },
    }
    stand_in(monkeypatch, modules)
    yield state
    slime.use(Recorder())


def log_probs_and_entropy(logits: torch.Tensor) -> tuple[None, dict[str, list[torch.Tensor]]]:
    """pi of each row, and its entropy, out of "logits" [5] that are those of the five tokens already."""
    return None, {"log_probs": list(torch.split(logits, [2, 3])), "entropy": list(torch.split(-logits, [2, 3]))}


def policy_loss(args: Any, batch: Any, logits: torch.Tensor, reduce: Any) -> tuple[torch.Tensor, dict[str, Any]]:
    """A loss that looks `get_log_probs_and_entropy` up in its module, as slime's does."""
    _, found = sys.modules[slime.LOSSES[0]].get_log_probs_and_entropy(logits)
    rows = torch.cat(found["log_probs"])
    if args.get_mismatch_metrics:
        slime.tis(
            args, pg_loss=rows, loss_masks=batch["loss_masks"], train_log_probs=OLD, rollout_log_probs=MU, **LENGTHS
        )
    return reduce(rows.exp() * 2.0), {"loss": rows.detach().sum()}


def halved(args: Any, *, pg_loss: Any, loss_masks: Any, **named: Any) -> tuple[Any, Any, dict[str, Any]]:
    return pg_loss / 2, loss_masks, {"tis": torch.ones(1)}


def test_a_rollout_arrives_as_one_shard_with_the_mismatch(client: Client, ranks: SimpleNamespace) -> None:
    poster = Poster(client, "slime")
    slime.use(poster)
    slime.postprocess(SimpleNamespace(), 12, DATA)
    merged = poster.step(12)
    assert (merged["tokens"], merged["sequences"], merged["received_shards"], merged["shards"]) == (4, 2, 1, 2)
    assert merged["gaps"]["mismatch"]["log_ratio_mean"] == pytest.approx((0.25 - 0.25 + 0.0 + 0.25) / 4)
    assert list(merged["gaps"]) == ["mismatch"]


@pytest.mark.parametrize(("interval", "version"), [(None, 12), (1, 12), (4, 3)])
def test_a_version_counts_weight_syncs(ranks: SimpleNamespace, interval: int | None, version: int) -> None:
    recorder = Recorder()
    slime.use(recorder)
    args = SimpleNamespace(update_weights_interval=interval, use_tis=False, start_rollout_id=12)
    slime.postprocess(args, 12, DATA)
    parts = {"train_log_probs": OLD, "rollout_log_probs": MU, **LENGTHS}
    slime.tis(args, pg_loss=torch.tensor(4.0), loss_masks=MASKS, **parts)
    torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))]).step()
    assert [call["policy_version"] for call in recorder.calls] == [version, version]


@pytest.mark.parametrize("elsewhere", [{"last_stage": False}, {"tensor": 1}, {"context": 1}])
def test_the_other_ranks_of_a_model_parallel_group_post_nothing(
    ranks: SimpleNamespace, elsewhere: dict[str, Any]
) -> None:
    recorder = Recorder()
    slime.use(recorder)
    vars(ranks).update(elsewhere)
    slime.postprocess(SimpleNamespace(), 12, DATA)
    assert recorder.calls == []


def test_rows_that_context_parallelism_cut_are_put_together_first(ranks: SimpleNamespace) -> None:
    recorder = Recorder()
    slime.use(recorder)
    ranks.contexts = 2
    slime.postprocess(SimpleNamespace(), 12, DATA)
    (call,) = recorder.calls
    assert [row.tolist() for row in call["old_logprobs"]] == [[5.0, 5.0], [4.0, 4.0, 4.0]]
    assert call["mask"] is not MASKS and all(mine is given for mine, given in zip(call["mask"], MASKS, strict=True))


def test_a_rollout_whose_log_probs_were_not_recomputed_posts_nothing(ranks: SimpleNamespace) -> None:
    recorder = Recorder()
    slime.use(recorder)
    slime.postprocess(SimpleNamespace(), 12, {name: value for name, value in DATA.items() if name != "log_probs"})
    assert recorder.calls == []


def test_rollouts_that_are_never_recomputed_are_told_once(
    ranks: SimpleNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    slime.use(Recorder())
    for rollout in range(5):
        slime.postprocess(SimpleNamespace(), rollout, DATA | {"log_probs": None})
    [said] = [record.getMessage() for record in caplog.records]
    assert said.startswith("slime's postprocess has seen nothing of 3 training steps")
    assert said.endswith("which --get-mismatch-metrics recomputes")


@pytest.mark.parametrize(("use_tis", "loss"), [(False, 4.0), (True, 2.0)])
def test_the_correction_is_slimes_own_and_every_micro_batch_is_posted(
    ranks: SimpleNamespace, use_tis: bool, loss: float
) -> None:
    recorder, args = Recorder(), SimpleNamespace(use_tis=use_tis, start_rollout_id=7, num_steps_per_rollout=1)
    slime.use(recorder)
    for row in (slice(0, 1), slice(1, 2)):
        parts = {"train_log_probs": OLD[row], "rollout_log_probs": MU[row], **LENGTHS}
        corrected, masks, metrics = slime.tis(args, pg_loss=torch.tensor(4.0), loss_masks=MASKS[row], **parts)
        assert (float(corrected), masks, list(metrics)) == (loss, MASKS[row], ["tis"] if use_tis else [])
    torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))]).step()
    (call,) = recorder.calls
    assert (call["step"], call["minibatch"], call["shard"], call["shards"]) == (7, 0, 1, 2)
    assert all(torch.equal(mine, given) for mine, given in zip(call["sampling_logprobs"], MU, strict=True))
    assert [len(mask) for mask in call["mask"]] == [2, 3]


PI = torch.tensor([-0.125, -1.5, -2.0, -0.25, -0.125])
ACTOR = [SimpleNamespace(role="actor")]


def options(**changed: Any) -> SimpleNamespace:
    """What slime's options are in a worker of a fresh run."""
    given = {"use_tis": False, "get_mismatch_metrics": False, "start_rollout_id": 0, "rollout_temperature": 1.0}
    return SimpleNamespace(**given | changed)


def optimizer_steps() -> None:
    torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))]).step()


def train(args: SimpleNamespace, rollout: int, step: int, recompute: bool | None = None) -> torch.Tensor:
    """One gradient step of one micro-batch as slime makes it; `recompute`: whether its checkpoint is reentrant."""
    slime.before_step(args, rollout, step, ACTOR, None, None)
    logits = PI.clone().requires_grad_()
    if recompute is None:
        loss, _ = slime.loss(args, DATA, logits, torch.sum)
    else:
        loss, _ = checkpoint(slime.loss, args, DATA, logits, torch.sum, use_reentrant=recompute)
    loss.backward()
    assert logits.grad is not None
    return logits.grad


def test_the_loss_is_slimes_own_and_posts_all_three_log_probs_with_their_entropy(ranks: SimpleNamespace) -> None:
    recorder = Recorder()
    slime.use(recorder)
    gradient = train(options(num_steps_per_rollout=2), 40, 1)
    optimizer_steps()
    assert torch.equal(gradient, PI.exp() * 2.0)
    assert sys.modules[slime.LOSSES[0]].get_log_probs_and_entropy is log_probs_and_entropy
    (call,) = recorder.calls
    assert [call[name] for name in ("step", "minibatch", "minibatches", "policy_version")] == [40, 1, 2, 40]
    rows = {"logprobs": PI, "entropy": -PI, "sampling_logprobs": torch.cat(MU), "old_logprobs": torch.cat(OLD)}
    assert all(torch.equal(torch.cat(call[name]), values) for name, values in rows.items())
    assert not any(row.requires_grad for row in call["logprobs"])
    assert [len(mask) for mask in call["mask"]] == [2, 3] and "advantages" in call


def test_under_top_p_the_entropy_which_is_of_all_tokens_is_not_sent(ranks: SimpleNamespace) -> None:
    recorder = Recorder()
    slime.use(recorder)
    train(options(rollout_top_p=0.9), 0, 0)
    optimizer_steps()
    assert "logprobs" in recorder.calls[0] and "entropy" not in recorder.calls[0]


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("hook", ["loss", "tis"])
def test_a_loss_that_is_recomputed_for_its_gradient_is_posted_once_and_has_its_gradient(
    ranks: SimpleNamespace, reentrant: bool, hook: str
) -> None:
    recorder, args = Recorder(), options(get_mismatch_metrics=hook == "tis")
    slime.use(recorder)
    if hook == "loss":
        gradient = train(args, 3, 0, reentrant)
    else:
        logits = PI.clone().requires_grad_()
        checkpoint(policy_loss, args, DATA, logits, torch.sum, use_reentrant=reentrant)[0].backward()
        assert logits.grad is not None
        gradient = logits.grad
    optimizer_steps()
    assert torch.equal(gradient, PI.exp() * 2.0)
    assert [len(call["mask"]) for call in recorder.calls] == [2]


def test_under_context_parallelism_a_recomputed_loss_saves_the_same_tensors(
    ranks: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gather(row: torch.Tensor, total: int, response: int) -> torch.Tensor:
        return row * torch.ones(len(row), requires_grad=True)  # saves both, were there a graph

    monkeypatch.setattr(sys.modules[slime.GATHER], "all_gather_with_cp", gather, raising=False)
    recorder = Recorder()
    slime.use(recorder)
    ranks.contexts = 2
    assert torch.equal(train(options(), 3, 0, False), PI.exp() * 2.0)
    optimizer_steps()
    assert not any(row.requires_grad for row in recorder.calls[0]["logprobs"])


def test_a_step_that_is_skipped_or_made_once_more_shifts_no_other(ranks: SimpleNamespace) -> None:
    recorder, args = Recorder(), options(num_steps_per_rollout=2)
    slime.use(recorder)
    train(args, 7, 0)  # its gradient is not finite: the optimizer does not step
    train(args, 7, 1)
    optimizer_steps()
    train(args, 8, 0)  # discarded
    train(args, 8, 0)
    optimizer_steps()
    assert [(call["step"], call["minibatch"], len(call["mask"])) for call in recorder.calls] == [
        (7, 0, 2),
        (7, 1, 2),
        (8, 0, 2),
    ]


def test_a_resumed_run_whose_rollout_no_hook_tells_posts_nothing_and_says_so_once(
    ranks: SimpleNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    recorder, args = Recorder(), options(start_rollout_id=None)
    slime.use(recorder)
    parts = {"train_log_probs": OLD, "rollout_log_probs": MU, **LENGTHS}
    for _ in range(2):
        slime.tis(args, pg_loss=torch.tensor(4.0), loss_masks=MASKS, **parts)
        optimizer_steps()
    assert recorder.calls == []
    [said] = [record.getMessage() for record in caplog.records]
    assert said.endswith(
        "--custom-megatron-before-train-step-hook-path offpolicy_monitor.client.adapters.slime.before_step"
    )
    slime.before_step(args, 31, 0, ACTOR, None, None)
    slime.tis(args, pg_loss=torch.tensor(4.0), loss_masks=MASKS, **parts)
    optimizer_steps()
    assert [call["step"] for call in recorder.calls] == [31]


@pytest.mark.parametrize(
    ("given", "steps"),
    [
        ({"num_steps_per_rollout": 4, "global_batch_size": 64}, 4),
        ({"rollout_batch_size": 32, "n_samples_per_prompt": 8, "global_batch_size": 64}, 4),
        ({"rollout_batch_size": 32, "n_samples_per_prompt": 8, "global_batch_size": 256}, 1),
        ({"use_dynamic_global_batch_size": True, "global_batch_size": 64}, 1),
        ({}, 1),
    ],
)
def test_gradient_steps_per_rollout_are_as_slime_counts_them(given: dict[str, Any], steps: int) -> None:
    assert steps_of(SimpleNamespace(**given)) == steps


@pytest.mark.parametrize(("role", "last_stage", "said"), [("actor", True, 1), ("actor", False, 0), ("critic", True, 0)])
def test_steps_that_pass_without_a_loss_are_told_once_where_one_is_computed(
    ranks: SimpleNamespace, caplog: pytest.LogCaptureFixture, role: str, last_stage: bool, said: int
) -> None:
    slime.use(Recorder())
    ranks.last_stage = last_stage
    for step in range(5):
        slime.before_step(options(), step, 0, [SimpleNamespace(role=role)], None, None)
    assert len(caplog.records) == said
    assert all("slime's loss or tis has seen nothing of 3 training steps" in r.getMessage() for r in caplog.records)


@pytest.mark.parametrize(("temperature", "environment", "said"), [(0.8, "1", 1), (0.8, "", 0), (1.0, "true", 0)])
def test_an_engine_that_tells_log_probs_before_the_temperature_is_named(
    ranks: SimpleNamespace,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    temperature: float,
    environment: str,
    said: int,
) -> None:
    monkeypatch.setenv(BEFORE_TEMPERATURE, environment)
    monkeypatch.setattr(slime._hooks.scaling, "told", False)
    slime.use(Recorder())
    for step in range(2):
        train(options(rollout_temperature=temperature), step, 0)
    assert len(caplog.records) == said
    assert all(BEFORE_TEMPERATURE in record.getMessage() for record in caplog.records)


def test_a_loss_that_slime_computes_in_another_way_costs_the_figures_alone(
    ranks: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = Recorder()
    recorder.strict = False
    slime.use(recorder)
    monkeypatch.delattr(sys.modules[slime.LOSSES[0]], "get_log_probs_and_entropy")
    monkeypatch.setattr(sys.modules[slime.LOSSES[0]], "policy_loss_function", lambda *_: ("loss", {}))
    assert slime.loss(options(), DATA, PI, torch.sum) == ("loss", {})


def test_without_an_address_nothing_is_posted_and_training_goes_on(
    ranks: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("OFFPOLICY_URL", raising=False)
    monkeypatch.setattr(slime._hooks.here, "given", None)
    slime.postprocess(SimpleNamespace(), 12, DATA)
    assert len(caplog.records) == 1 and "OFFPOLICY_URL" in caplog.records[0].getMessage()
