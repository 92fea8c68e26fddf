"""Learner: the policy, its optimiser and its schedules; one gradient step at a time.

What it hands back of a gradient step is what a trainer would log: the current policy's log-probs from the training
forward. It knows nothing of sampling, of steps to come, or of the service.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from offpolicy_monitor.demo.config import DemoConfig
from offpolicy_monitor.demo.grpo import Objective
from offpolicy_monitor.demo.planted import recompute
from offpolicy_monitor.demo.policy import Policy, Shape
from offpolicy_monitor.demo.rollout import Rollout
from offpolicy_monitor.demo.task import vocabulary

ADAM_EPSILON = 1e-6  # above float32 noise: a learned task has gradients near 0, which must stay small steps


@dataclass(frozen=True)
class Update:
    """Of one gradient step, before it moved the weights: log_pi and entropy [B, A] float32, nats."""

    log_pi: Tensor
    entropy: Tensor


class Learner:
    """Trains one policy by AdamW on the clipped loss."""

    def __init__(self, config: DemoConfig, generator: torch.Generator, kind: type[Policy] = Policy) -> None:
        self.config = config
        shape = Shape(
            vocabulary(config.letters, config.begun),
            config.prompt_width,
            config.answer_width,
            config.width,
            config.layers,
            config.heads,
        )
        self.policy = kind(shape, generator)
        self.objective = Objective(config.clip_low, config.clip_high, config.entropy_floor, config.entropy_weight)
        self.optimizer = torch.optim.AdamW(self.policy.parameters(), eps=ADAM_EPSILON, weight_decay=0.01)

    def learning_rate(self, step: int) -> float:
        """Linear warm-up, then halving every `half_life` steps, never below the floor."""
        config = self.config
        decayed = max(config.learning_rate_floor, config.learning_rate * math.exp2(-step / config.half_life))
        return decayed * min(1.0, (step + 1) / config.warm_up)

    def update(self, rollout: Rollout, step: int) -> Update:
        """One gradient step; a gradient that is not finite changes nothing."""
        log_pi, entropy = recompute(self.config.fault, self.policy, rollout.tokens, rollout.starts)
        loss = self.objective.loss(log_pi, rollout.log_old, rollout.advantages, entropy, rollout.mask)
        self.optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.policy.parameters(), self.config.gradient_norm)
        if torch.isfinite(norm):
            self.optimizer.param_groups[0]["lr"] = self.learning_rate(step)
            self.optimizer.step()
        return Update(log_pi.detach(), entropy.detach())
