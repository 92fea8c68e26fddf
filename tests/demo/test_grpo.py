import math

import pytest
import torch
from offpolicy_monitor.demo.grpo import Objective, group_advantages


def test_advantages_are_rewards_less_their_groups_mean_over_its_deviation() -> None:
    rewards = torch.tensor([1.0, 0.0, 1.0, 0.0, 0.2, 0.2, 0.2, 0.2, 4.0, 0.0, 0.0, 0.0])
    advantages = group_advantages(rewards, 4)
    third = math.sqrt(3.0)
    expected = torch.tensor([1, -1, 1, -1, 0, 0, 0, 0, third, -1 / third, -1 / third, -1 / third])
    torch.testing.assert_close(advantages, expected, rtol=1e-3, atol=0)
    assert advantages[4:8].tolist() == [0.0] * 4


def loss(ratios: list[float], advantage: float, entropy: float = 1.0) -> tuple[float, list[float]]:
    """The loss of one answer with these ratios, and its gradient in the current log-probs."""
    objective = Objective(clip_low=0.2, clip_high=0.3, entropy_floor=0.5, entropy_weight=0.1)
    logp = torch.tensor([ratios]).log().requires_grad_()
    mask = torch.tensor([[True] * len(ratios)])
    shape = torch.zeros_like(logp)
    value = objective.loss(logp, shape, torch.tensor([advantage]), shape + entropy, mask)
    (gradient,) = torch.autograd.grad(value, logp)
    return float(value.detach()), gradient[0].tolist()


def test_a_good_answer_is_raised_up_to_the_upper_clip() -> None:
    value, gradient = loss([1.0, 1.2, 1.5], advantage=2.0)
    assert value == pytest.approx(-2 * (1.0 + 1.2 + 1.3) / 3)
    assert gradient == pytest.approx([-2 * 1.0 / 3, -2 * 1.2 / 3, 0.0])


def test_a_bad_answer_is_lowered_down_to_the_lower_clip() -> None:
    value, gradient = loss([1.0, 0.5, 1.5], advantage=-2.0)
    assert value == pytest.approx(2 * (1.0 + 0.8 + 1.5) / 3)
    assert gradient == pytest.approx([2 * 1.0 / 3, 0.0, 2 * 1.5 / 3])


def test_only_the_entropy_that_is_missing_is_paid_for() -> None:
    assert loss([1.0], 0.0, entropy=0.7)[0] == 0.0
    assert loss([1.0], 0.0, entropy=0.2)[0] == pytest.approx(0.1 * 0.3)


def test_what_the_mask_excludes_is_never_read() -> None:
    objective = Objective(0.2, 0.3, 0.5, 0.1)
    logp = torch.tensor([[0.0, math.nan]], requires_grad=True)
    old, entropy = torch.tensor([[0.0, math.inf]]), torch.tensor([[1.0, math.nan]])
    value = objective.loss(logp, old, torch.tensor([2.0]), entropy, torch.tensor([[True, False]]))
    (gradient,) = torch.autograd.grad(value, logp)
    assert float(value.detach()) == -2.0
    assert gradient[0].tolist() == [-2.0, 0.0]
