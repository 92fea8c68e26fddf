import math
from dataclasses import replace

import pytest
import torch
from offpolicy_monitor.demo.learner import Learner
from offpolicy_monitor.demo.trainer import Level, Trainer

from tests.demo.small import small


def test_the_learning_rate_warms_up_and_halves_down_to_its_floor() -> None:
    config = small(learning_rate=8e-4, learning_rate_floor=1e-4, half_life=100, warm_up=10)
    learner = Learner(config, torch.Generator().manual_seed(0))
    assert learner.learning_rate(0) == pytest.approx(0.8e-4)
    assert learner.learning_rate(100) == pytest.approx(4e-4)
    assert learner.learning_rate(200) == pytest.approx(2e-4)
    assert learner.learning_rate(10**9) == 1e-4


def test_a_gradient_that_is_not_finite_changes_no_weight() -> None:
    trainer = Trainer(small())
    rollout = trainer.rollouts(0)[0]
    before = {name: weight.clone() for name, weight in trainer.learner.policy.state_dict().items()}
    trainer.learner.update(replace(rollout, advantages=torch.full_like(rollout.advantages, math.nan)), 0)
    after = trainer.learner.policy.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    trainer.learner.update(rollout, 0)
    assert not torch.equal(before["head.weight"], trainer.learner.policy.state_dict()["head.weight"])


def test_the_reward_rises() -> None:
    trainer, rewards = Trainer(small(seed=1)), []
    for step in range(30):
        rollouts = trainer.rollouts(step)
        rewards.append(sum(float(rollout.rewards.mean()) for rollout in rollouts) / len(rollouts))
        list(trainer.gradient_steps(rollouts, step))
    first, last = sum(rewards[:10]) / 10, sum(rewards[-10:]) / 10
    assert first < 0.4
    assert last > first + 0.25


def test_a_seed_fixes_the_whole_run() -> None:
    def rewards(seed: int) -> list[float]:
        trainer, seen = Trainer(small(seed=seed)), []
        for step in range(3):
            rollouts = trainer.rollouts(step)
            seen += [float(rollout.rewards.mean()) for rollout in rollouts]
            list(trainer.gradient_steps(rollouts, step))
        return seen

    assert rewards(4) == rewards(4)
    assert rewards(4) != rewards(5)


def test_prompts_get_longer_each_time_their_length_is_learned() -> None:
    level = Level(first=3, top=5)
    letters = []
    for _ in range(200):
        level.record(1.0)
        letters.append(level.letters)
    assert letters[0] == 3
    assert letters == sorted(letters)
    assert set(letters) == {3, 4, 5}


def test_prompts_stay_as_they_are_while_their_length_is_not_learned() -> None:
    level = Level(first=3, top=5)
    for _ in range(500):
        level.record(0.75)
    assert level.letters == 3
