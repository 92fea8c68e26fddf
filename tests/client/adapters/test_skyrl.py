"""SkyRL's adapter, driven with losses and batches of the shapes of release 0.3.0."""

import pickle
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from offpolicy_monitor.client.adapters.skyrl import Callback, Ending, watched

from tests.client.adapters.recorder import Recorder
from tests.client.adapters.tokens import of, told

# Answers of three and of two tokens; the second has one that a tool wrote behind its first.
TOKENS = [[2, 3, 4], [12, 13, 14]]
MASK = torch.tensor([[1, 1, 1], [1, 0, 1]])
ANSWERS = [[2, 3, 4], [12, 14]]
NAMES = ["sampling_logprobs", "old_logprobs", "logprobs", "advantages"]
VALUES = {name: torch.tensor([of(name, row) for row in TOKENS]) for name in NAMES}
CONFIG = SimpleNamespace(policy_loss_type="watched", eps=0.2)
POSTED: list[Recorder] = []


def regular(
    log_probs: torch.Tensor,
    old_log_probs: torch.Tensor,
    advantages: torch.Tensor,
    config: Any,
    loss_mask: torch.Tensor | None = None,
    rollout_logprobs: torch.Tensor | None = None,
) -> tuple[torch.Tensor, dict[str, Any]]:
    """A loss with the signature of those in SkyRL's registry, which looks for its own name as they do."""
    assert config.policy_loss_type == "regular" and loss_mask is not None
    ratio = (log_probs - old_log_probs).exp()
    return -(ratio * advantages * loss_mask).sum(), {"clip_ratio": config.eps}


def make() -> Recorder:
    POSTED.append(Recorder())
    return POSTED[-1]


def call(loss: Any, rows: slice = slice(None), **changes: Any) -> Any:
    """As SkyRL's workers call it."""
    given = {name: value[rows] for name, value in VALUES.items()} | changes
    return loss(
        given["logprobs"],
        given["old_logprobs"],
        given["advantages"],
        config=CONFIG,
        loss_mask=MASK[rows],
        rollout_logprobs=given["sampling_logprobs"],
    )


def test_the_watched_loss_is_the_loss_under_its_own_name() -> None:
    plain = regular(
        VALUES["logprobs"],
        VALUES["old_logprobs"],
        VALUES["advantages"],
        SimpleNamespace(policy_loss_type="regular", eps=0.2),
        MASK,
    )
    seen = call(watched(regular, Recorder, stands_for="regular"))
    assert (seen[0].item(), seen[1]) == (plain[0].item(), plain[1])
    assert CONFIG.policy_loss_type == "watched"


@pytest.mark.parametrize("name", NAMES)
def test_every_array_has_the_answers_tokens_under_the_mask(name: str) -> None:
    recorder = Recorder()
    loss = watched(regular, lambda: recorder, stands_for="regular")
    for row in (slice(0, 1), slice(1, 2)):
        call(loss, row)
    torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))]).step()
    (sent,) = recorder.calls
    assert told(sent, name) == [of(name, answer) for answer in ANSWERS]


def test_a_loss_pickled_into_workers_counts_gradient_steps() -> None:
    POSTED.clear()
    loss = pickle.loads(pickle.dumps(watched(regular, make, stands_for="regular", minibatches=2, first_step=5)))
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))])
    for _ in range(3):
        call(loss)
        optimizer.step()
    assert [(sent["step"], sent["minibatch"]) for sent in POSTED[0].calls] == [(5, 0), (5, 1), (6, 0)]
    assert [sent["policy_version"] for sent in POSTED[0].calls] == [4, 4, 5]


def test_a_loss_that_skips_pi_old_posts_the_other_two() -> None:
    recorder = Recorder()
    loss = watched(lambda *arguments, **named: (torch.zeros(()), {}), lambda: recorder)
    call(loss, old_logprobs=None)
    torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))]).step()
    assert "old_logprobs" not in recorder.calls[0]
    assert told(recorder.calls[0], "sampling_logprobs") == [of("sampling_logprobs", answer) for answer in ANSWERS]


def ended(**changes: Any) -> SimpleNamespace:
    """What SkyRL gives a callback at the end of a step."""
    batch = {
        "rollout_logprobs": VALUES["sampling_logprobs"],
        "action_log_probs": VALUES["old_logprobs"],
        "advantages": VALUES["advantages"],
        "loss_mask": MASK,
        "rewards": None,
    }
    return SimpleNamespace(global_step=7, batch=batch | changes)


def test_the_callback_posts_the_batch_of_the_step_that_ended() -> None:
    recorder = Recorder()
    callback = Callback(recorder)
    callback.on_train_start(None, ended(), None)
    callback.on_step_end(None, ended(), None)
    (sent,) = recorder.calls
    assert (sent["step"], sent["policy_version"]) == (7, 6) and "logprobs" not in sent
    for name in ("sampling_logprobs", "old_logprobs", "advantages"):
        assert told(sent, name) == [of(name, answer) for answer in ANSWERS]


@pytest.mark.parametrize("field", ["rollout_logprobs", "action_log_probs"])
def test_the_callback_posts_nothing_where_one_of_the_two_is_missing(field: str) -> None:
    recorder = Recorder()
    Callback(recorder).on_step_end(None, ended(**{field: None}), None)
    assert recorder.calls == []


def test_batches_without_pi_old_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    callback = Callback(Recorder())
    for _ in range(5):
        callback.on_step_end(None, ended(action_log_probs=None), None)
    [said] = [record.getMessage() for record in caplog.records]
    assert said.endswith("the batch has no rollout_logprobs or no action_log_probs")


@pytest.mark.parametrize(("callback", "for_run"), [(Callback, False), (Ending, True)])
def test_the_end_of_training_is_the_end_of_the_run_and_no_other_event_is(callback: Any, for_run: bool) -> None:
    recorder = Recorder()
    watching = callback(recorder)
    for event in ("on_train_start", "on_step_start", "on_step_end", "on_epoch_end"):
        getattr(watching, event)(None, ended(), None)
    assert recorder.ends == []
    watching.on_train_end(None, ended(), None)
    assert recorder.ends == [for_run]


def test_the_callback_has_the_events_of_a_callback_and_no_other_attribute() -> None:
    assert not hasattr(Callback(Recorder()), "state")


@pytest.mark.parametrize(("temperature", "mode", "is_said"), [
    (0.7, "raw_logprobs", True), (0.7, "processed_logprobs", False), (1.0, "raw_logprobs", False),
])  # fmt: skip
def test_a_temperature_by_which_pi_alone_is_scaled_is_said_once_with_the_setting(
    caplog: pytest.LogCaptureFixture, temperature: float, mode: str, is_said: bool
) -> None:
    config = SimpleNamespace(policy_loss_type="watched", eps=0.2, temperature=temperature)
    loss = pickle.loads(pickle.dumps(watched(regular, make, stands_for="regular", logprobs_mode=mode)))
    for _ in range(2):
        given = [VALUES[name] for name in ("logprobs", "old_logprobs", "advantages")]
        loss(*given, config=config, loss_mask=MASK, rollout_logprobs=VALUES["sampling_logprobs"])
    assert ["engine_init_kwargs.logprobs_mode=processed_logprobs" in said for said in caplog.messages] == [
        True
    ] * is_said


def test_the_callback_sees_both_sides_in_the_trainers_configuration(caplog: pytest.LogCaptureFixture) -> None:
    engine = SimpleNamespace(engine_init_kwargs={})
    trainer = SimpleNamespace(
        cfg=SimpleNamespace(
            trainer=SimpleNamespace(algorithm=SimpleNamespace(temperature=0.7)),
            generator=SimpleNamespace(inference_engine=engine),
        )
    )
    callback = Callback(Recorder())
    for _ in range(2):
        callback.on_step_end(trainer, SimpleNamespace(global_step=1, batch={}), None)
    (said,) = [message for message in caplog.messages if "temperature" in message]
    assert "pi_old is after the sampling temperature of 0.7, mu is before it" in said
    engine.engine_init_kwargs["logprobs_mode"] = "processed_logprobs"
    caplog.clear()
    Callback(Recorder()).on_step_end(trainer, SimpleNamespace(global_step=1, batch={}), None)
    assert not any("temperature" in message for message in caplog.messages)
