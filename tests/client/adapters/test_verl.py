"""verl's adapter, driven with objects of the shapes that verl documents: a batch of tensors, a policy loss."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from offpolicy_monitor.client.adapters.verl import log_rollout, watched_loss

from tests.client.adapters.recorder import Poster, Recorder
from tests.fixtures.application import Client

MU = torch.tensor([[-0.5, -1.25, 0.0], [-2.25, -0.75, -0.5], [-1.0, 0.0, 0.0]])
OLD = MU + torch.tensor([[0.25, -0.25, 9.0], [0.0, 0.5, 0.25], [-0.5, 9.0, 9.0]])
MASK = torch.tensor([[1, 1, 0], [1, 1, 1], [1, 0, 0]])
ADVANTAGES = torch.tensor([[1.0, 1.0, 1.0], [-1.0, -1.0, -1.0], [0.5, 0.5, 0.5]])


def batch(**fields: torch.Tensor) -> SimpleNamespace:
    """What the adapter reads of a DataProto: `batch`, a mapping of [B, R] tensors."""
    whole = {"rollout_log_probs": MU, "old_log_probs": OLD, "response_mask": MASK, "advantages": ADVANTAGES}
    return SimpleNamespace(batch=whole | fields)


def token_mean(
    old_log_prob: torch.Tensor,
    log_prob: torch.Tensor,
    advantages: torch.Tensor,
    response_mask: torch.Tensor,
    loss_agg_mode: str = "token-mean",
    config: Any = None,
    rollout_is_weights: torch.Tensor | None = None,
) -> tuple[torch.Tensor, dict[str, Any]]:
    """A policy loss with the signature of those in verl's registry."""
    ratio = (log_prob - old_log_prob).exp() * response_mask
    return -(ratio * advantages).sum() / response_mask.sum(), {"mode": loss_agg_mode}


def test_the_trainers_batch_gives_the_mismatch(client: Client) -> None:
    poster = Poster(client, "verl")
    log_rollout(poster, batch(), step=3)
    merged = poster.step(3)
    assert (merged["tokens"], merged["sequences"], list(merged["gaps"])) == (6, 3, ["mismatch"])
    assert merged["gaps"]["mismatch"]["log_ratio_mean"] == pytest.approx((0.25 - 0.25 + 0.0 + 0.5 + 0.25 - 0.5) / 6)


def test_a_version_is_the_step_whose_weights_were_synced_last_and_those_of_answers_are_verls() -> None:
    recorder, told = Recorder(), batch()
    log_rollout(recorder, told, step=3)
    told.non_tensor_batch = {"min_global_steps": np.array([None, None, None], object)}
    log_rollout(recorder, told, step=4)
    told.non_tensor_batch = {"min_global_steps": np.array([2, None, 4], object)}
    log_rollout(recorder, told, step=5, shards=2, policy_version=7)
    assert [call["policy_version"] for call in recorder.calls] == [2, 3, 7, 7]
    assert [call["policy_versions"].tolist() for call in recorder.calls[2:]] == [[2], [-1, 4]]
    assert all("policy_versions" not in call for call in recorder.calls[:2])


def test_answers_of_older_weights_have_a_lag(client: Client) -> None:
    poster, stale = Poster(client, "verl"), batch()
    stale.non_tensor_batch = {"min_global_steps": np.array([2, 1, 2], object)}
    log_rollout(poster, stale, step=3)
    assert poster.step(3)["policy_lag"]["max"] == 1


def test_the_batch_can_be_posted_in_as_many_shards_as_the_workers_post() -> None:
    recorder = Recorder()
    log_rollout(recorder, batch(), step=3, shards=2, minibatches=3)
    assert [(call["shard"], call["shards"], call["minibatches"]) for call in recorder.calls] == [(0, 2, 3), (1, 2, 3)]
    assert torch.equal(torch.cat([call["old_logprobs"] for call in recorder.calls]), OLD)


def test_a_batch_in_bypass_mode_or_without_the_engines_log_probs_posts_nothing() -> None:
    recorder, without = Recorder(), batch()
    del without.batch["rollout_log_probs"]
    log_rollout(recorder, batch(old_log_probs=MU), step=3)
    log_rollout(recorder, batch(old_log_probs=torch.where(MASK == 1, MU, 7.0)), step=3)
    log_rollout(recorder, without, step=3)
    assert recorder.calls == []


def test_batches_that_cannot_be_posted_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    recorder = Recorder()
    for step in range(5):
        log_rollout(recorder, batch(old_log_probs=MU), step=step)
    [said] = [record.getMessage() for record in caplog.records]
    assert said.startswith("verl's log_rollout has seen nothing of 3 training steps") and "bypass=True" in said


def test_a_watched_loss_that_is_never_called_is_told_once_and_one_that_is_called_never(
    caplog: pytest.LogCaptureFixture,
) -> None:
    loss = watched_loss(token_mean, Recorder())
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(()))])
    loss(OLD, OLD, ADVANTAGES, MASK)
    never = watched_loss(token_mean, Recorder())
    for _ in range(5):
        optimizer.step()
    [said] = [record.getMessage() for record in caplog.records]
    assert said.startswith("verl's watched loss has seen nothing of 3 training steps") and "loss_mode" in said
    assert never is not loss


def test_the_watched_loss_is_the_loss_and_posts_one_shard_a_gradient_step(client: Client) -> None:
    poster, shift = Poster(client, "verl"), torch.nn.Parameter(torch.zeros(()))
    optimizer, loss = torch.optim.SGD([shift], lr=0.5), watched_loss(token_mean, poster, minibatches=2)
    shifts = []
    for _ in range(4):
        shifts.append(float(shift.detach()))
        optimizer.zero_grad()
        for rows in (slice(0, 2), slice(2, 3)):
            given: dict[str, Any] = {"advantages": ADVANTAGES[rows], "response_mask": MASK[rows].bool()}
            value, metrics = loss(old_log_prob=OLD[rows], log_prob=OLD[rows] + shift, loss_agg_mode="m", **given)
            assert torch.equal(value, token_mean(OLD[rows], OLD[rows] + shift, **given)[0]) and metrics == {"mode": "m"}
            value.backward()
        optimizer.step()
    keys = [(call["step"], call["minibatch"], call["minibatches"]) for call in poster.calls]
    assert keys == [(1, 1, 3), (1, 2, 3), (2, 1, 3), (2, 2, 3)]
    assert [call["policy_version"] for call in poster.calls] == [0, 0, 1, 1]
    for (step, minibatch, _), moved in zip(keys, shifts, strict=True):
        merged = poster.step(step, minibatch)
        assert (merged["tokens"], merged["sequences"], list(merged["gaps"])) == (6, 3, ["staleness"])
        assert merged["gaps"]["staleness"]["log_ratio_mean"] == pytest.approx(moved, abs=1e-6)
    assert shifts[0] == 0.0 and abs(shifts[3]) > 0.1


def test_in_bypass_mode_the_loss_gives_the_total_gap() -> None:
    recorder, shift = Recorder(), torch.nn.Parameter(torch.zeros(()))
    loss = watched_loss(token_mean, recorder, bypass=True)
    loss(MU, OLD + shift, ADVANTAGES, MASK)
    torch.optim.SGD([shift]).step()
    (call,) = recorder.calls
    assert torch.equal(torch.stack(call["sampling_logprobs"]), MU) and "old_logprobs" not in call
