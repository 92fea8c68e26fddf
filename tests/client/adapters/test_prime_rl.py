"""prime-rl's adapter, driven with objects of the shape of its LossInputs: one whole sequence per call."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from offpolicy_monitor.client.adapters.prime_rl import _made, own_loss, watched_loss

from tests.client.adapters.recorder import Poster, Recorder
from tests.fixtures.application import Client


def sequence(drift: float, mask: list[bool], advantage: float | None = 1.0) -> SimpleNamespace:
    """A sequence whose first token stands for a prompt, with the uniform log-prob that prime-rl puts there."""
    mu = torch.tensor([0.0, *(-1.0 - 0.25 * position for position in range(1, len(mask)))])
    pi = torch.cat([torch.full((1,), -11.0), mu[1:] + drift]).requires_grad_()
    advantages = None if advantage is None else torch.full((len(mask),), advantage)
    masked = torch.tensor(mask)
    return SimpleNamespace(
        trainer_logprobs=pi, inference_logprobs=mu, advantages=advantages, loss_mask=masked, loss_weights=None
    )


def loss(inputs: Any, scale: float = 1.0) -> tuple[float, float]:
    """Whatever the run's own loss is."""
    return float(inputs.trainer_logprobs.detach()[inputs.loss_mask].sum()), scale


class Training:
    """The end of a step as prime-rl's `train` has it; with `full_offload` the optimizer of torch never steps."""

    def __init__(self, offload: bool = False) -> None:
        self.optimizer, self.offload = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))]), offload

    def end(self) -> None:
        if not self.offload:
            self.optimizer.step()
        self.optimizer.zero_grad()


def test_the_sequences_of_a_training_step_arrive_as_one_step_with_the_total_gap(client: Client) -> None:
    poster, training = Poster(client, "prime"), Training()
    watched = watched_loss(loss, poster)
    batches = [
        [sequence(0.5, [False, True, True, True]), sequence(-0.25, [False, True])],
        [sequence(0.125, [False, True])],
    ]
    for batch in batches:
        for inputs in batch:
            assert watched(inputs, scale=2.0) == (loss(inputs)[0], 2.0)
        training.end()
    first, second = poster.step(1), poster.step(2)
    assert (first["tokens"], first["sequences"], list(first["gaps"])) == (4, 2, ["total"])
    assert first["gaps"]["total"]["log_ratio_mean"] == pytest.approx((3 * 0.5 - 0.25) / 4)
    assert second["gaps"]["total"]["log_ratio_mean"] == pytest.approx(0.125)


def test_what_is_kept_until_the_step_ends_holds_no_graph() -> None:
    recorder = Recorder()
    watched = watched_loss(loss, recorder, first_step=40)
    watched(sequence(0.5, [False, True], advantage=None))
    Training().end()
    (call,) = recorder.calls
    assert (call["step"], call["policy_version"]) == (40, 39) and "advantages" not in call
    assert not call["logprobs"][0].requires_grad


@pytest.mark.parametrize("offload", [False, True], ids=["on the device", "full_offload"])
def test_a_rank_without_sequences_in_a_step_goes_on_with_the_number_of_the_others(offload: bool) -> None:
    recorder, training = Recorder(), Training(offload)
    watched = watched_loss(loss, recorder)
    for sequences in (0, 2, 0, 1):
        for _ in range(sequences):
            watched(sequence(0.5, [False, True]))
        training.end()
    assert [(call["step"], len(call["logprobs"])) for call in recorder.calls] == [(2, 2), (4, 1)]


class Settings(SimpleNamespace):
    """Stands for a configuration of prime-rl's losses, which takes its settings by name."""


@pytest.fixture
def prime(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    """prime-rl's modules as far as `own_loss` asks for them; the configurations that losses were made of."""
    made: list[Settings] = []

    def setup_rl_loss_fn(config: Settings) -> Any:
        made.append(config)
        return lambda inputs: (config.kind, float(inputs.loss_mask.sum()))

    class DefaultLossConfig(Settings):
        kind = "default"

    class IPOLossConfig(Settings):
        kind = "ipo"

    configs = SimpleNamespace(DefaultLossConfig=DefaultLossConfig, IPOLossConfig=IPOLossConfig)
    monkeypatch.setitem(sys.modules, "prime_rl.configs.trainer", configs)
    loss = SimpleNamespace(setup_rl_loss_fn=setup_rl_loss_fn)
    monkeypatch.setitem(sys.modules, "prime_rl.trainer.rl.loss", loss)
    _made.cache_clear()
    return made


def test_the_runs_own_loss_is_made_once_by_prime_rl_of_the_settings_that_it_had(prime: list[Settings]) -> None:
    recorder = Recorder()
    watched = watched_loss(own_loss, recorder)
    inputs = sequence(0.5, [False, True])
    settings = {"type": "ipo", "ipo_threshold": 0.05, "kl_tau": 0.0}
    assert [watched(inputs, **settings) for _ in range(2)] == [("ipo", 1.0)] * 2
    assert [vars(config) for config in prime] == [{"ipo_threshold": 0.05, "kl_tau": 0.0}]
    assert watched(inputs) == ("default", 1.0) and vars(prime[1]) == {}
