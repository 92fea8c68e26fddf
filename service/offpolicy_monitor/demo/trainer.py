"""Trainer: the policy, its sampler, and the rollouts that wait between sampling and training.

Training steps as data: it samples `lag` steps ahead, takes the gradient steps, and gives out each as a message. It
knows neither the service nor the clock.
"""

from collections import deque
from collections.abc import Iterator

import torch

from offpolicy_monitor.demo.backend import Backend, backend_of
from offpolicy_monitor.demo.config import DemoConfig
from offpolicy_monitor.demo.learner import Learner
from offpolicy_monitor.demo.message import Message, make_message
from offpolicy_monitor.demo.rollout import Rollout, collect
from offpolicy_monitor.demo.scenarios import config_at
from offpolicy_monitor.demo.unfinished import DROPS, Unfinished, blocks_of, young

LEVEL_SOLVED = 0.8  # share of right answers, averaged, at which prompts get longer
LEVEL_MEMORY = 20  # training steps over which it is averaged


class Level:
    """How long prompts may be: one letter more each time the present length is learned, up to the top."""

    def __init__(self, first: int, top: int) -> None:
        self.letters, self.top, self.solved = first, top, 0.0

    def record(self, solved: float) -> None:
        """Take in one training step's share of right answers."""
        self.solved += (solved - self.solved) / LEVEL_MEMORY
        if self.solved > LEVEL_SOLVED and self.letters < self.top:
            self.letters, self.solved = self.letters + 1, 0.0


class Trainer:
    """Everything that a seed decides. One thread, no global random state; a real engine has its own of both."""

    def __init__(self, config: DemoConfig, backend: Backend | None = None) -> None:
        self.backend = backend or backend_of(config)
        self.planned = config
        self.config = config = config_at(config, 0)
        self.generator = torch.Generator().manual_seed(config.seed)
        self.learner = Learner(config, self.generator, self.backend.policy)
        self.sampler = self.backend.sampler(config, self.learner.policy)
        self.level = Level(config.first_level, config.top_level)
        self.waiting: deque[list[Rollout]] = deque()
        self.unfinished = Unfinished(self.generator)

    def rollouts(self, step: int) -> list[Rollout]:
        """One block for each gradient step of training step `step`, sampled `lag` steps before where there were any.

        Where the trainer drops what is old, they are smaller, and may be fewer.
        """
        self._reconfigure(step)
        fault = self.config.fault
        if fault is not None and fault.name == DROPS:
            return self._young(step, fault.strength)
        while len(self.waiting) <= self.config.lag:
            self.waiting.append(self._sample(step))
        return self.waiting.popleft()

    def gradient_steps(self, rollouts: list[Rollout], step: int) -> Iterator[Message]:
        """Take one gradient step on each block, and give its message: the log-probs it started from."""
        for minibatch, rollout in enumerate(rollouts):
            update = self.learner.update(rollout, step)
            yield make_message(self.config, rollout, update, step, minibatch, len(rollouts))

    def _reconfigure(self, step: int) -> None:
        """Become what the run's scenario makes of it at this step."""
        before, config = self.config, config_at(self.planned, step)
        self.config = self.learner.config = config
        if config.fault != before.fault:
            self.sampler = self.backend.sampler(config, self.learner.policy)

    def _young(self, step: int, oldest: float) -> list[Rollout]:
        """What is done by now and no older than so many steps; the trainer waits until there is something."""
        done: list[Rollout] = []
        while not done:
            done = young(self.unfinished.write(self._sample(step), self.config.lag), step, oldest)
        return blocks_of(done, self.config.minibatches)

    def _sample(self, step: int) -> list[Rollout]:
        """One block for each gradient step of a training step, by the weights of now, unless no sync is taken."""
        if self.config.synced:
            self.sampler.sync(self.learner.policy)
        return [self._collect(step) for _ in range(self.config.minibatches)]

    def _collect(self, step: int) -> Rollout:
        letters = max(self.level.letters, self.config.shortest)
        return collect(self.learner.policy, self.sampler, self.config, letters, step, self.generator)
