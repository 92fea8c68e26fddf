"""Message: one gradient step as a trainer logs it, by the names of the wire.

Sequences are packed prompt and answer together, as trainers hold them: the mask is 1 where the sampler wrote, and the
prompt's log-probs are zeros that no figure may read. It knows the wire's names and shapes, and no HTTP.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from offpolicy_monitor.demo.config import DemoConfig
from offpolicy_monitor.demo.learner import Update
from offpolicy_monitor.demo.rollout import Rollout

NOT_GENERATED = -1
ENGINE_PATHS = {"exact": "trainer-forward"}


@dataclass(frozen=True)
class Message:
    """Envelope (JSON-ready) and arrays by their names on the wire."""

    envelope: Mapping[str, Any]
    arrays: Mapping[str, NDArray[Any]]

    @property
    def arguments(self) -> dict[str, Any]:
        """Those of `Monitor.log`."""
        return {**self.envelope, **self.arrays}


def make_message(
    config: DemoConfig, rollout: Rollout, update: Update, step: int, minibatch: int, minibatches: int
) -> Message:
    """The message of gradient step `minibatch` of training step `step`, which is the current policy's version too."""
    replica = {} if rollout.replica is None else {"replica": str(rollout.replica)}
    engine = config.engine or ENGINE_PATHS.get(config.sampler, "kv-cache")
    envelope = {
        "step": step,
        "minibatch": minibatch,
        "minibatches": minibatches,
        "policy_version": step,
        "labels": {"engine": engine, "precision": config.sampler, **replica},
    }
    return Message(envelope, {name: tensor.numpy() for name, tensor in _arrays(config, rollout, update).items()})


def _arrays(config: DemoConfig, rollout: Rollout, update: Update) -> dict[str, Tensor]:
    prompt = config.prompt_width
    column = torch.arange(rollout.tokens.shape[1])
    end = prompt + rollout.mask.sum(1)
    present = (column >= rollout.starts[:, None]) & (column < end[:, None])

    def packed(answers: Tensor, before: float) -> Tensor:
        return F.pad(answers, (prompt, 0), value=before)[present]

    rescored = {} if rollout.log_rescored is None else {"engine_logprobs": packed(rollout.log_rescored, 0.0)}
    return {
        "sampling_logprobs": packed(rollout.log_mu, 0.0),
        **rescored,
        "old_logprobs": packed(rollout.log_old, 0.0),
        "logprobs": packed(update.log_pi, 0.0),
        "entropy": packed(update.entropy, 0.0),
        "mask": packed(rollout.mask, 0.0),
        "policy_versions": packed(rollout.versions[:, None].expand_as(rollout.mask), NOT_GENERATED),
        "lengths": end - rollout.starts,
        "advantages": rollout.advantages,
        "rewards": rollout.rewards,
        "group_ids": rollout.groups,
    }
