"""Replicas: two engines that take turns, one of which misses weight syncs.

What `--fault stale_weights` plants: the stale engine samples with its old weights and believes that they are new. It
knows nothing of what the engines are.
"""

from dataclasses import replace

import torch

from offpolicy_monitor.demo.policy import Policy
from offpolicy_monitor.demo.sampler import Sampler, Samples
from offpolicy_monitor.demo.task import Prompts


class Replicas:
    """A sampler of two: `fresh` takes every sync, `stale` the first and then each `every`-th."""

    def __init__(self, fresh: Sampler, stale: Sampler, every: int) -> None:
        self.engines, self.every = (fresh, stale), every
        self.syncs = self.turn = 0

    def sync(self, policy: Policy) -> None:
        """Hand the weights to the engines that take them."""
        fresh, stale = self.engines
        fresh.sync(policy)
        if self.syncs % self.every == 0:
            stale.sync(policy)
        # Each sync the other one begins, so that both serve every index among a step's blocks.
        self.turn = self.syncs % 2
        self.syncs += 1

    def generate(self, prompts: Prompts, generator: torch.Generator) -> Samples:
        """Write one answer to each prompt, all by one replica, and say by which."""
        replica, self.turn = self.turn, 1 - self.turn
        return replace(self.engines[replica].generate(prompts, generator), replica=replica)
