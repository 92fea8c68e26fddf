"""GRPO: advantages within a group, and the clipped policy loss per token.

Pure functions on tensors. B answers, A columns, G answers to one prompt standing together.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


def group_advantages(rewards: Tensor, samples: int) -> Tensor:
    """A = (r - mean of the group) / (std of the group + 1e-4): [B] float32; 0 where a whole group earns the same.

    rewards [B] with B a multiple of `samples`; std is the population's.
    """
    groups = rewards.view(-1, samples)
    centred = groups - groups.mean(1, keepdim=True)
    return (centred / (groups.std(1, correction=0, keepdim=True) + 1e-4)).flatten()


@dataclass(frozen=True)
class Objective:
    """Constants of the loss: clip range (1 - clip_low, 1 + clip_high), and the price of entropy below its floor."""

    clip_low: float
    clip_high: float
    entropy_floor: float
    entropy_weight: float

    def loss(self, logp: Tensor, logp_old: Tensor, advantages: Tensor, entropy: Tensor, mask: Tensor) -> Tensor:
        """-mean_t min(r A, clip(r) A) + weight * max(0, floor - mean_t entropy), means over tokens under the mask.

        logp, logp_old, entropy [B, A] float32 (nats); advantages [B]; mask [B, A] bool. r = exp(logp - logp_old).
        Only the entropy that is missing is paid for: a policy that has learned the task is left alone.
        """
        ratio = (logp - logp_old)[mask].exp()
        advantage = advantages[:, None].expand_as(logp)[mask]
        clipped = ratio.clamp(1 - self.clip_low, 1 + self.clip_high)
        surrogate = torch.minimum(ratio * advantage, clipped * advantage).mean()
        return self.entropy_weight * (self.entropy_floor - entropy[mask].mean()).clamp(min=0) - surrogate
