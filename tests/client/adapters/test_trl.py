"""TRL's adapter around the real GRPOTrainer: what the service tells equals what the trainer's own tensors give."""

import gc
import importlib
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from offpolicy_monitor.client.adapters.trl import Watch, arrays, ask, post, version, watch

from tests.client.adapters.recorder import Poster, Recorder
from tests.fixtures.application import Client

# What transformers and its tokenizers say about themselves is not this project's to mend.
pytestmark = [
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning"),
    pytest.mark.process("trl"),
]

GAPS = {
    "mismatch": ("old_per_token_logps", "sampling_per_token_logps"),
    "staleness": ("current", "old_per_token_logps"),
    "total": ("current", "sampling_per_token_logps"),
}


@pytest.fixture(scope="module")
def trl() -> Any:
    """The trainers. Importing them takes seconds, which those who run other tests need not spend."""
    trainer = importlib.import_module("tests.client.adapters.trl_trainer")
    gc.freeze()  # each trainer looks for garbage, which is not among what was imported
    return trainer


def expected(forwards: list[dict[str, Any]], gap: str) -> dict[str, float]:
    """The gap's figures over the completion tokens of some forwards, from the trainer's tensors, in float64."""
    upper, lower = GAPS[gap]
    differences = []
    for seen in forwards:
        tensors = seen | {"current": seen["scored"][0]}
        mask = seen["completion_mask"].bool()
        differences.append(tensors[upper][mask].double() - tensors[lower][mask].double())
    d = torch.cat(differences)
    return {
        "tokens": len(d),
        "k1": float(-d.mean()),
        "k3": float((d.exp() - 1 - d).mean()),
        "log_ratio_min": float(d.min()),
        "log_ratio_max": float(d.max()),
        "abs_log_ratio_mean": float(d.abs().mean()),
    }


def test_the_figures_of_every_gradient_step_are_those_of_the_trainers_own_tensors(
    client: Client, tmp_path: Path, trl: Any
) -> None:
    training, poster = trl.trainer(trl.SamplingTrainer, tmp_path), Poster(client, "trl")
    watch(training, poster).train()
    assert [(seen["global_step"]) for seen in training.seen] == list(range(8))
    for global_step, seen in enumerate(training.seen):
        merged = poster.step(global_step // 4 * 4, global_step % 4)
        assert merged["complete"] and merged["sequences"] == 4 and merged["policy_version"] == global_step // 4
        assert merged["policy_lag"] == {"mean": 0, "max": 0}
        for gap in GAPS:
            told = {name: merged["gaps"][gap][name] for name in expected([seen], gap)}
            assert told == pytest.approx(expected([seen], gap), rel=1e-5, abs=1e-7), gap


def test_the_policy_moves_within_a_rollout_and_the_engine_stays_where_it_was(
    client: Client, tmp_path: Path, trl: Any
) -> None:
    poster = Poster(client, "trl")
    watch(trl.trainer(trl.SamplingTrainer, tmp_path, max_steps=4), poster).train()
    steps = [poster.step(0, minibatch) for minibatch in range(4)]
    assert steps[0]["gaps"]["staleness"]["abs_log_ratio_max"] < 1e-5
    assert steps[3]["gaps"]["staleness"]["k3"] > 1e-3
    assert all(0 < step["gaps"]["mismatch"]["k3"] < 1e-3 for step in steps)


def test_without_an_engines_log_probs_the_staleness_arrives_and_no_other_gap(
    client: Client, tmp_path: Path, trl: Any
) -> None:
    training, poster = trl.trainer(trl.RecordingTrainer, tmp_path, max_steps=4), Poster(client, "trl")
    watch(training, poster).train()
    merged = poster.step(0, 3)
    assert list(merged["gaps"]) == ["staleness"]
    told = {name: merged["gaps"]["staleness"][name] for name in expected([training.seen[3]], "staleness")}
    assert told == pytest.approx(expected([training.seen[3]], "staleness"), rel=1e-5, abs=1e-7)


def test_accumulated_forwards_are_the_shards_of_one_gradient_step(client: Client, tmp_path: Path, trl: Any) -> None:
    training, poster = (
        trl.trainer(trl.RecordingTrainer, tmp_path, gradient_accumulation_steps=2, max_steps=4),
        Poster(client, "a"),
    )
    watch(training, poster).train()
    keys = [(call["step"], call["minibatch"], call["shard"], call["shards"]) for call in poster.calls]
    assert keys == [
        (0, 0, 0, 2),
        (0, 0, 1, 2),
        (0, 1, 0, 2),
        (0, 1, 1, 2),
        (2, 0, 0, 2),
        (2, 0, 1, 2),
        (2, 1, 0, 2),
        (2, 1, 1, 2),
    ]
    merged, accumulated = poster.step(0, 1), expected(training.seen[2:4], "staleness")
    assert merged["complete"] and merged["minibatches"] == [0, 1]
    assert {name: merged["gaps"]["staleness"][name] for name in accumulated} == pytest.approx(
        accumulated, rel=1e-5, abs=1e-7
    )


def test_entropies_advantages_and_versions_are_the_trainers(tmp_path: Path, trl: Any) -> None:
    training, recorder = trl.trainer(trl.RecordingTrainer, tmp_path, max_steps=6), Recorder()
    watch(training, recorder).train()
    for call, seen in zip(recorder.calls, training.seen, strict=True):
        assert torch.equal(call["logprobs"], seen["scored"][0]) and torch.equal(call["entropy"], seen["scored"][1])
        assert torch.equal(call["advantages"], seen["advantages"])
        assert not call["logprobs"].requires_grad
    assert [call["policy_version"] for call in recorder.calls] == [0, 0, 0, 0, 1, 1]
    assert [call["policy_versions"].tolist() for call in recorder.calls] == [[0] * 4] * 4 + [[1] * 4] * 2


@pytest.mark.parametrize(
    ("forwards", "accumulated", "global_steps"),
    [(4, 1, (0, 4, 8)), (16, 4, (0, 4, 8)), (6, 4, (0, 1, 3, 4)), (2, 4, (0, 1, 2)), (4, 1, (6, 10, 14))],
)
def test_a_version_counts_weight_syncs_whatever_a_gradient_step_accumulates(
    forwards: int, accumulated: int, global_steps: tuple[int, ...]
) -> None:
    """Of rollouts that last so many forwards, and begin at these global steps; the last is a run that was resumed."""
    versions = [version(step * accumulated, max(forwards, accumulated)) for step in global_steps]
    assert versions == list(range(versions[0], versions[0] + len(global_steps)))


def test_the_forwards_of_every_process_are_shards_of_their_own() -> None:
    recorder, rows = Recorder(), torch.zeros(1, 2)
    inputs = {"old_per_token_logps": rows, "completion_mask": rows + 1}
    trainer = SimpleNamespace(
        args=SimpleNamespace(steps_per_generation=4, gradient_accumulation_steps=2),
        accelerator=SimpleNamespace(process_index=1, num_processes=3),
        state=SimpleNamespace(global_step=10),
        num_iterations=1,
    )
    watched = Watch(trainer, recorder)
    for forward in range(4):
        trainer._step, trainer.state.global_step = 20 + forward, 10 + forward // 2
        post(recorder, watched, inputs, (rows, None))
    keys = [(call["step"], call["minibatch"], call["minibatches"], call["shard"]) for call in recorder.calls]
    assert keys == [(10, 0, 2, 2), (10, 0, 2, 3), (10, 1, 2, 2), (10, 1, 2, 3)]
    assert {call["shards"] for call in recorder.calls} == {6}


def test_tokens_that_a_tool_wrote_are_masked_and_what_trl_leaves_out_is_not_sent() -> None:
    inputs = {"completion_mask": torch.tensor([[1, 1, 1, 0]]), "tool_mask": torch.tensor([[1, 0, 1, 1]])}
    sent = arrays(inputs | {"old_per_token_logps": None}, (torch.zeros(1, 4), None, None))
    assert sorted(sent) == ["logprobs", "mask"]
    assert sent["mask"].tolist() == [[True, False, True, False]]


def test_the_run_has_ended_where_train_comes_to_its_end(tmp_path: Path, trl: Any) -> None:
    recorder = Recorder()
    watch(trl.trainer(trl.RecordingTrainer, tmp_path, max_steps=2), recorder).train()
    assert (len(recorder.calls), recorder.ends) == (2, [False])


def test_a_loss_that_scores_its_tokens_elsewhere_posts_mu_and_pi_old_and_is_told_once_that_pi_is_missing(
    tmp_path: Path, trl: Any, caplog: pytest.LogCaptureFixture
) -> None:
    class Compiled(trl.SamplingTrainer):
        def compute_loss(self, model: Any, inputs: Any, *arguments: Any, **named: Any) -> Any:
            return sum(parameter.sum() for parameter in model.parameters())

    recorder = Recorder()
    watch(trl.trainer(Compiled, tmp_path, max_steps=5), recorder).train()
    assert [(call["step"], call["minibatch"]) for call in recorder.calls] == [(0, 0), (0, 1), (0, 2), (0, 3), (4, 0)]
    assert all({"sampling_logprobs", "old_logprobs"} < call.keys() for call in recorder.calls)
    assert not any("logprobs" in call for call in recorder.calls)
    [said] = [record.getMessage() for record in caplog.records if record.name == "offpolicy_monitor"]
    assert "_get_per_token_logps_and_entropies has seen nothing of 3 training steps, so no logprobs" in said
    assert "adapters.unsloth" in said


def test_tokens_that_are_scored_as_one_packed_row_are_seen(tmp_path: Path, trl: Any) -> None:
    """As axolotl does with `batch_flattening`, by a method of its own."""

    class Flattening(trl.RecordingTrainer):
        def _get_per_token_logps_and_entropies_flattened(self, *arguments: Any, **named: Any) -> Any:
            return super()._get_per_token_logps_and_entropies(*arguments, **named)

        def _get_per_token_logps_and_entropies(self, *arguments: Any, **named: Any) -> Any:
            return self._get_per_token_logps_and_entropies_flattened(*arguments, **named)

    recorder, training = Recorder(), trl.trainer(Flattening, tmp_path, max_steps=2)
    watch(training, recorder).train()
    assert [(call["step"], call["minibatch"]) for call in recorder.calls] == [(0, 0), (0, 1)]
    assert all("logprobs" in call for call in recorder.calls)


def test_what_is_scored_after_the_policy_in_a_loss_is_not_taken_for_it(tmp_path: Path, trl: Any) -> None:
    class Referring(trl.RecordingTrainer):
        def _compute_loss(self, model: Any, inputs: Any) -> Any:
            loss = super()._compute_loss(model, inputs)
            tokens = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1)
            self._get_per_token_logps_and_entropies(model, 0 * tokens, 0 * tokens + 1, inputs["completion_ids"].size(1))
            return loss

    recorder, training = Recorder(), trl.trainer(Referring, tmp_path, max_steps=2)
    watch(training, recorder).train()
    for call, seen in zip(recorder.calls, training.seen, strict=True):
        assert torch.equal(call["logprobs"], seen["scored"][0])


def test_a_rollout_that_was_generated_ahead_claims_no_version(tmp_path: Path, trl: Any) -> None:
    recorder, training = Recorder(), trl.trainer(trl.RecordingTrainer, tmp_path, max_steps=1)
    training.args.async_prefetch = True
    watch(training, recorder).train()
    [call] = recorder.calls
    assert call["policy_version"] == 0 and "policy_versions" not in call


@pytest.mark.parametrize(
    ("mode", "temperature", "said"),
    [("raw_logprobs", 0.7, 1), ("processed_logprobs", 0.7, 0), ("raw_logprobs", 1.0, 0), (None, 0.7, 0)],
)
def test_a_server_whose_log_probs_are_before_the_temperature_is_said(
    mode: str | None, temperature: float, said: int, caplog: pytest.LogCaptureFixture
) -> None:
    client = SimpleNamespace(get_server_info=lambda: {"model_config": {"logprobs_mode": mode} if mode else None})
    ask(client, "TRL's GRPOTrainer", temperature)
    for thread in threading.enumerate():
        if thread.name == "offpolicy-monitor-scaling":
            thread.join()
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == said and all("--logprobs-mode processed_logprobs" in line for line in told)


def test_a_crash_in_training_says_nothing(tmp_path: Path, trl: Any) -> None:
    recorder, training = Recorder(), trl.trainer(trl.RecordingTrainer, tmp_path, max_steps=2)
    training.reward_funcs[0] = lambda **_: 1 / 0
    with pytest.raises(ZeroDivisionError):
        watch(training, recorder).train()
    assert recorder.ends == []


def test_a_rollout_that_is_used_once_has_nothing_to_compare_and_posts_nothing(tmp_path: Path, trl: Any) -> None:
    recorder = Recorder()
    once = {"num_iterations": 1, "gradient_accumulation_steps": 2, "max_steps": 2}
    watch(trl.trainer(trl.RecordingTrainer, tmp_path, **once), recorder).train()
    assert recorder.calls == []


def test_watching_changes_no_weight(tmp_path: Path, trl: Any) -> None:
    plain = trl.trainer(trl.RecordingTrainer, tmp_path / "plain", max_steps=5)
    plain.train()
    watched = watch(trl.trainer(trl.RecordingTrainer, tmp_path / "watched", max_steps=5), Recorder())
    watched.train()
    for alone, beside in zip(plain.model.parameters(), watched.model.parameters(), strict=True):
        assert torch.equal(alone, beside)
