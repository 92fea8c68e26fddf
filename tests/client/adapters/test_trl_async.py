"""The adapter around TRL's real AsyncGRPOTrainer on the CPU, with a queue filled here."""

import gc
import importlib
import queue
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from offpolicy_monitor.client.adapters.trl_async import GROUPS, Noting, Versions, note, watch

from tests.client.adapters.recorder import Poster, Recorder
from tests.fixtures.application import Client

pytestmark = [
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning"),
    pytest.mark.process("trl"),
]


@pytest.fixture(scope="module")
def trl() -> Any:
    """The trainer. Importing it takes seconds, which those who run other tests need not spend."""
    trainer = importlib.import_module("tests.client.adapters.trl_async_trainer")
    gc.freeze()  # each trainer looks for garbage, which is not among what was imported
    return trainer


def test_the_figures_of_every_gradient_step_are_those_of_the_trainers_own_tensors(
    client: Client, tmp_path: Path, trl: Any
) -> None:
    training, poster = trl.trainer(tmp_path, gradient_accumulation_steps=2, max_steps=3), Poster(client, "async")
    watch(training, poster).train()
    keys = [[call[name] for name in ("step", "shard", "shards")] for call in poster.calls]
    assert keys == [[step, shard, 2] for step in range(3) for shard in range(2)]
    for step in range(3):
        merged, forwards = poster.step(step), training.seen[2 * step : 2 * step + 2]
        d = torch.cat([seen["log_probs"].double() - seen["old_log_probs"].double() for seen in forwards])
        assert merged["complete"] and merged["sequences"] == 8 and list(merged["gaps"]) == ["total"]
        total = merged["gaps"]["total"]
        assert total["tokens"] == len(d)
        assert (total["k1"], total["abs_log_ratio_mean"]) == pytest.approx(
            (float(-d.mean()), float(d.abs().mean())), rel=1e-5, abs=1e-7
        )
    assert training.seen[-1]["lag"] and poster.ends == [False]


def test_sequences_are_samples_and_versions_those_of_the_worker_and_the_syncs(tmp_path: Path, trl: Any) -> None:
    training, recorder = trl.trainer(tmp_path, max_steps=4, weight_sync_steps=2), Recorder()
    watch(training, recorder).train()
    assert [call["policy_version"] for call in recorder.calls] == [1, 1, 2, 2]
    for call, seen in zip(recorder.calls, training.seen, strict=True):
        assert torch.equal(torch.cat(call["logprobs"]), seen["log_probs"])
        assert torch.equal(torch.cat(call["sampling_logprobs"]), seen["old_log_probs"])
        assert [len(row) for row in call["logprobs"]] == np.bincount(seen["segment_id"]).tolist()
        assert (torch.cat(call["entropy"]) > 0).all() and not call["logprobs"][0].requires_grad
        # The stub's samples say in their advantage which of them they are, and so which version sampled them.
        sampled = [training.rollout_worker.versions[float(row[0])] for row in call["advantages"]]
        assert call["policy_versions"].tolist() == sampled
    assert recorder.calls[2]["policy_versions"].tolist() == [1, 1, 1, 1]  # of one sync before the one that is live


def test_watching_changes_no_weight(tmp_path: Path, trl: Any) -> None:
    plain = trl.trainer(tmp_path / "plain", max_steps=2)
    plain.train()
    watched = watch(trl.trainer(tmp_path / "watched", max_steps=2), Recorder())
    watched.train()
    for alone, beside in zip(plain.model.parameters(), watched.model.parameters(), strict=True):
        assert torch.equal(alone, beside)


def test_a_server_whose_log_probs_are_before_the_temperature_is_said_once(
    tmp_path: Path, trl: Any, caplog: pytest.LogCaptureFixture
) -> None:
    training = trl.trainer(tmp_path, max_steps=2, temperature=0.8)
    training.vllm_client.get_server_info = lambda: {"model_config": {"logprobs_mode": "raw_logprobs"}}
    watch(training, Recorder()).train()
    [said] = [record.getMessage() for record in caplog.records if record.name == "offpolicy_monitor"]
    assert "--logprobs-mode processed_logprobs" in said and "0.8" in said


def test_what_is_remembered_of_the_queue_is_bounded(trl: Any) -> None:
    versions = Versions(None, Recorder())
    waiting = Noting(queue.Queue(), versions)
    waiting.put(trl.sample(group=7, version=3))
    assert (waiting.qsize(), waiting.get(timeout=1).group_id, dict(versions.groups)) == (1, 7, {7: 3})
    recorder, sample = Recorder(), trl.sample(group=8, version=4)
    for group in range(8, 8 + GROUPS):
        note(recorder, versions.groups, replace(sample, group_id=group))
    assert len(versions.groups) == GROUPS and 7 not in versions.groups
