"""slime's adapter, driven as slime drives it: functions called with its arguments, over modules of its names.

Megatron and slime do not install here, so modules that hold what the adapter asks of them stand in their place.
"""

import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from offpolicy_monitor.client.adapters import slime

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
        slime.CORRECTION: {"vanilla_tis_function": halved},
    }
    for name, contents in modules.items():
        module = ModuleType(name)
        vars(module).update(contents)
        monkeypatch.setitem(sys.modules, name, module)
    yield state
    slime.use(Recorder())


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


def test_without_an_address_nothing_is_posted_and_training_goes_on(
    ranks: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("OFFPOLICY_URL", raising=False)
    monkeypatch.setattr(slime, "_given", [])
    slime.postprocess(SimpleNamespace(), 12, DATA)
    assert len(caplog.records) == 1 and "OFFPOLICY_URL" in caplog.records[0].getMessage()
