"""Optimizers of Megatron that leave a step out, with classes whose methods are called and answer as Megatron's do.

Megatron does not install where these tests run; tests/frameworks has the same with its own optimizers.
"""

import functools
import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from offpolicy_monitor.client.adapters import nemo_rl, skyrl
from offpolicy_monitor.client.adapters.shared import megatron

from tests.client.adapters.recorder import Recorder

Stepped = tuple[bool, float | None, int | None]


class MegatronOptimizer:
    """The base, which has neither method itself."""


class MixedPrecision(MegatronOptimizer):
    """Around one optimizer of torch; clears gradients by hand, and leaves a step out by its own check."""

    def __init__(self) -> None:
        self.optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))])
        self.found_inf = False

    def zero_grad(self, set_to_none: bool = True) -> None:
        for group in self.optimizer.param_groups:
            for parameter in group["params"]:
                parameter.grad = None

    def step(self) -> Stepped:
        if self.found_inf:
            return False, None, None
        self.optimizer.step()
        return True, 1.0, None


class Chained(MegatronOptimizer):
    """Around several: asks each of them first, and steps none where one is not finite."""

    def __init__(self) -> None:
        self.chained = [MixedPrecision(), MixedPrecision()]
        self.found_inf = False

    def zero_grad(self, set_to_none: bool = True) -> None:
        for optimizer in self.chained:
            optimizer.zero_grad(set_to_none)

    def step(self) -> Stepped:
        if self.found_inf:
            return False, None, None
        for optimizer in self.chained:
            optimizer.optimizer.step()
        return True, 1.0, None


@pytest.fixture(autouse=True)
def _loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType(megatron.MODULE)
    vars(module)[megatron.BASE] = MegatronOptimizer
    monkeypatch.setitem(sys.modules, megatron.MODULE, module)


def values(value: float) -> torch.Tensor:
    return torch.full((1, 3), value)


def of_skyrl(recorder: Recorder) -> Callable[[float], object]:
    loss = skyrl.watched(lambda *arguments, **named: (torch.zeros(()), {}), lambda: recorder)

    def forward(value: float) -> object:
        mu, mask = values(value - 1), torch.ones(1, 3)
        return loss(values(value), None, None, SimpleNamespace(), loss_mask=mask, rollout_logprobs=mu)

    return forward


def of_nemo_rl(recorder: Recorder) -> Callable[[float], object]:
    own = functools.partial(lambda *arguments: arguments[0].sum())
    loss = nemo_rl.watched(own, lambda: recorder)

    def forward(value: float) -> object:
        data = {name: torch.full((1, 4), value - 1) for name in nemo_rl.KEYS.values()}
        return loss(values(value), data | {"token_mask": torch.ones(1, 4), "sample_mask": torch.ones(1)})

    return forward


@pytest.mark.parametrize("kind", [MixedPrecision, Chained])
@pytest.mark.parametrize("made", [of_skyrl, of_nemo_rl])
def test_a_step_that_megatron_leaves_out_is_one_of_its_own_and_posted_at_once(kind: Any, made: Any) -> None:
    recorder, optimizer = Recorder(), kind()
    forward = made(recorder)
    for value, found_inf in ((-1.0, False), (-2.0, True), (-3.0, True), (-4.0, False)):
        optimizer.zero_grad()
        for _ in range(2):
            forward(value)
        optimizer.found_inf = found_inf
        assert optimizer.step()[0] is not found_inf
        assert [[float(row[0]) for row in call["logprobs"]] for call in recorder.calls][-1] == [value] * 2
    assert [call["step"] for call in recorder.calls] == [1, 2, 3, 4]


def test_a_step_whose_gradients_are_cleared_without_it_is_over_when_the_run_ends() -> None:
    recorder, optimizer = Recorder(), Chained()
    forward = of_skyrl(recorder)
    for value in (-1.0, -2.0):  # as trainers do that ask `prepare_grads` themselves
        forward(value)
        optimizer.zero_grad()
    assert [call["step"] for call in recorder.calls] == [1]
    recorder.finish()
    assert [float(call["logprobs"][0][0]) for call in recorder.calls] == [-1.0, -2.0]


def test_what_the_optimizers_give_back_is_as_without_a_listener() -> None:
    optimizer = Chained()
    of_skyrl(Recorder())(-1.0)
    assert optimizer.step() == (True, 1.0, None)
    optimizer.found_inf = True
    assert optimizer.step() == (False, None, None)
    assert optimizer.zero_grad(set_to_none=False) is None
    assert Chained.step.__name__ == "step"
