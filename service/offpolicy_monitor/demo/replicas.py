"""Replicas: two engines, one of which misses weight syncs: it samples with old weights and believes that they are new.

What `--fault stale_weights` plants, where they take turns, and `early_replica`, where the stale one samples the first
minibatch of each rollout alone. It knows nothing of what the engines are.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import torch

from offpolicy_monitor.demo.faults import Fault
from offpolicy_monitor.demo.policy import Policy
from offpolicy_monitor.demo.sampler import Sampler, Samples
from offpolicy_monitor.demo.task import Prompts

#: By the fault that asks for two engines whether they take turns.
TAKES_TURNS: Final[Mapping[str, bool]] = {"stale_weights": True, "early_replica": False}


class Replicas:
    """A sampler of two: `fresh` takes every sync, `stale` the first and then each n-th; n is the fault's strength."""

    def __init__(self, fresh: Sampler, stale: Sampler, fault: Fault) -> None:
        self.engines, self.every, self.takes_turns = (fresh, stale), int(fault.strength), TAKES_TURNS[fault.name]
        self.syncs = self.turn = 0

    def sync(self, policy: Policy) -> None:
        """Hand the weights to the engines that take them."""
        fresh, stale = self.engines
        fresh.sync(policy)
        if self.syncs % self.every == 0:
            stale.sync(policy)
        # Each sync the other one begins, so that both serve every index among a step's blocks.
        self.turn = self.syncs % 2 if self.takes_turns else 1
        self.syncs += 1

    def generate(self, prompts: Prompts, generator: torch.Generator) -> Samples:
        """Write one answer to each prompt, all by one replica, and say by which."""
        replica, self.turn = self.turn, 1 - self.turn if self.takes_turns else 0
        return replace(self.engines[replica].generate(prompts, generator), replica=replica)
