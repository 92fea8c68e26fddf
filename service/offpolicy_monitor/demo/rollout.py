"""Rollout: one block of answers with everything known about them before the first gradient step on it.

A block is a minibatch from the start: it is sampled, recomputed and trained on in one shape, so that equal weights and
equal code give equal bits. It knows the task and the policy, and nothing of the loss or the service.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final, Self

import torch
from torch import Tensor

from offpolicy_monitor.demo.config import DemoConfig
from offpolicy_monitor.demo.grpo import group_advantages
from offpolicy_monitor.demo.planted import recompute, reported
from offpolicy_monitor.demo.policy import Policy
from offpolicy_monitor.demo.sampler import Sampler
from offpolicy_monitor.demo.task import Prompts, draw_prompts, reward, vocabulary, with_beginning


@dataclass(frozen=True)
class Rollout:
    """B answers in L = P + A columns, those to one prompt standing together.

    tokens [B, L] int64; starts [B] int64 (first column that is no padding); mask [B, A] bool (written by the sampler);
    log_mu, log_old [B, A] float32 (nats); rewards, advantages [B] float32;
    groups [B] int64: which answers are to one prompt; versions [B] int32: the training step whose weights sampled each;
    replica: the engine that did, None where there is one; log_rescored [B, A] float32 (nats): log-probs by the engine's
    prefill, None where it was not asked.
    """

    tokens: Tensor
    starts: Tensor
    mask: Tensor
    log_mu: Tensor
    log_old: Tensor
    rewards: Tensor
    advantages: Tensor
    groups: Tensor
    versions: Tensor
    replica: int | None = None
    log_rescored: Tensor | None = None

    @property
    def solved(self) -> Tensor:
        """[B] bool: answers that are right to the last letter."""
        return self.rewards == 1.0

    def rows(self, which: Tensor | slice) -> Self:
        """Some of the answers: [B] bool, or a slice of B."""
        return replace(self, **{name: getattr(self, name)[which] for name in self.columns})

    @property
    def columns(self) -> Sequence[str]:
        """What it has of each answer."""
        return COLUMNS if self.log_rescored is None else (*COLUMNS, "log_rescored")

    def in_groups_from(self, first: int) -> Self:
        """The same, its groups counted from `first` on."""
        return replace(self, groups=self.groups + first)


#: What every rollout has of each answer.
COLUMNS: Final = tuple(field.name for field in fields(Rollout) if field.type is Tensor)


def joined(parts: Sequence[Rollout]) -> Rollout:
    """The answers of several blocks of one engine as one."""
    columns: dict[str, Any] = {name: torch.cat([getattr(part, name) for part in parts]) for name in parts[0].columns}
    return replace(parts[0], **columns)


@torch.no_grad()
def collect(
    policy: Policy, sampler: Sampler, config: DemoConfig, level: int, version: int, generator: torch.Generator
) -> Rollout:
    """Sample one block with prompts of up to `level` letters, score it, and recompute its log-probs by `policy`.

    `sampler` must hold the weights of `policy`, or is at fault: log pi_old is the trainer's view of the policy that
    sampled.
    """
    prompts = _asked(config, level, generator)
    samples = sampler.generate(prompts, generator)
    tokens = torch.cat([prompts.tokens, samples.tokens], 1)
    log_old, _ = recompute(config.fault, policy, tokens, prompts.starts)
    answers = [row[:length] for row, length in zip(samples.tokens.tolist(), samples.mask.sum(1).tolist(), strict=True)]
    rewards = torch.tensor([reward(asked, given) for asked, given in zip(prompts.letters(), answers, strict=True)])
    advantages = group_advantages(rewards, config.samples)
    log_mu = reported(config.fault, samples.log_probs, generator)
    groups = torch.arange(len(rewards)) // config.samples
    versions = torch.full((len(rewards),), version, dtype=torch.int32)
    known = (samples.mask, log_mu, log_old, rewards, advantages, groups, versions, samples.replica)
    return Rollout(tokens, prompts.starts, *known, log_rescored=samples.rescored)


def _asked(config: DemoConfig, level: int, generator: torch.Generator) -> Prompts:
    width = config.prompt_width - config.begun
    drawn = draw_prompts(config.prompts, config.samples, level, config.letters, width, generator, config.shortest)
    return with_beginning(drawn, vocabulary(config.letters)) if config.begun else drawn
