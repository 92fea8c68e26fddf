"""TRL: what `GRPOTrainer` computes its loss from, posted at each forward of training, without a second forward.

Reads the trainer's own tensors (padded [B, T], completion tokens alone) on the way through `_compute_loss`. Knows the
names of TRL's inputs and its two counters, and imports nothing of it.

A rollout lasts `steps_per_generation * num_iterations` forwards; `gradient_accumulation_steps` of them make one
gradient step. So `step` is the optimizer step (`state.global_step`) that the rollout was generated at, `minibatch`
counts the optimizer steps since, and the accumulated forwards of one rank are its shards: each forward has a key of
its own, `step + minibatch` is TRL's global step, and a merged minibatch is exactly one gradient step. A version counts
rollouts, before each of which TRL hands its weights to vLLM: what is trained on a rollout has its version, lag 0.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from offpolicy_monitor.client.adapters import Logs
from offpolicy_monitor.client.adapters.shared.ends import AtEnd
from offpolicy_monitor.client.adapters.shared.layouts import detached
from offpolicy_monitor.client.adapters.shared.quiet import quiet
from offpolicy_monitor.client.adapters.shared.unseen import Unseen
from offpolicy_monitor.vocabulary import LOGPROBS

Trainer = TypeVar("Trainer")

# The contract's name of each of TRL's inputs; TRL leaves out what it has no use for.
INPUTS = {
    "sampling_logprobs": "sampling_per_token_logps",
    "old_logprobs": "old_per_token_logps",
    "advantages": "advantages",
}

ELSEWHERE = (
    "the trainer computes its loss elsewhere, as compiled ones do (Unsloth, Liger), or by other methods than "
    "GRPOTrainer's; give its log-probs to Monitor.log yourself"
)


def watch(trainer: Trainer, monitor: Logs) -> Trainer:
    """Post every training forward of a `GRPOTrainer`, or of a subclass, to `monitor`; gives back the same trainer.

    Sent: pi with its entropy; pi_old where TRL keeps it; mu where vLLM samples; advantages; the completion's mask
    without tool tokens; the policy version that generated. Evaluation posts nothing, and neither does a forward of
    which only pi exists. Where `train` comes to its end, the run has ended.
    """
    Watch(trainer, monitor).attach()
    return trainer


@dataclass
class Counts:
    """Where training is: optimizer steps done, the one that the rollout was generated at, the forward since."""

    done: int = -1
    rollout: int = -1
    forward: int = 0

    def advance(self, done: int, new_rollout: bool) -> None:
        """Count one more forward."""
        self.forward = self.forward + 1 if done == self.done else 0
        self.done = done
        if new_rollout or self.rollout < 0:
            self.rollout = done


class Events(AtEnd):
    """Listens to a trainer, whose steps end whether or not its loss is computed where it is watched."""

    def __init__(self, monitor: Logs, unseen: Unseen) -> None:
        super().__init__(monitor)
        self.unseen = unseen

    def on_step_end(self, *arguments: Any, **named: Any) -> None:
        """An optimizer step has passed."""
        self.unseen.step()


class Watch:
    """Stands around two methods of one trainer: the one that scores tokens, and the one that computes the loss."""

    def __init__(self, trainer: Any, monitor: Logs) -> None:
        self.trainer, self.monitor, self.counts = trainer, monitor, Counts()
        self.score, self.loss = trainer._get_per_token_logps_and_entropies, trainer._compute_loss
        self.scored: Any = None
        self.unseen = Unseen("TRL's _compute_loss", ELSEWHERE)

    def attach(self) -> None:
        """Take the place of both methods on this trainer, not on its class, and listen to its end."""
        self.trainer._get_per_token_logps_and_entropies = self.scoring
        self.trainer._compute_loss = self.losing
        self.trainer.add_callback(Events(self.monitor, self.unseen))

    def scoring(self, *arguments: Any, **named: Any) -> Any:
        """TRL's own result (log-probs [B, T], entropies [B, T] or None, ...), remembered until the loss is there."""
        self.scored = self.score(*arguments, **named)
        return self.scored

    def losing(self, model: Any, inputs: Mapping[str, Any], *arguments: Any, **named: Any) -> Any:
        """TRL's own loss; on the way out, the batch that it was computed from is posted."""
        self.scored = None
        loss = self.loss(model, inputs, *arguments, **named)
        scored, self.scored = self.scored, None
        if model.training and scored is not None:
            self.unseen.forward()
            post(self.monitor, self.trainer, self.counts, inputs, scored)
        return loss


@quiet
def post(monitor: Logs, trainer: Any, counts: Counts, inputs: Mapping[str, Any], scored: Any) -> None:
    """Post one forward, counted in any case."""
    rollout_forwards = trainer.args.steps_per_generation * trainer.num_iterations
    counts.advance(trainer.state.global_step, trainer._step % rollout_forwards == 0)
    sent = arrays(inputs, scored)
    if sum(name in sent for name in LOGPROBS) < 2:
        return
    accumulated = trainer.args.gradient_accumulation_steps
    synced = version(counts.rollout * accumulated, max(rollout_forwards, accumulated))
    monitor.log(
        step=counts.rollout,
        minibatch=counts.done - counts.rollout,
        minibatches=max(1, rollout_forwards // accumulated),
        shard=trainer.accelerator.process_index * accumulated + counts.forward,
        shards=trainer.accelerator.num_processes * accumulated,
        policy_version=synced,
        policy_versions=np.full(len(inputs["completion_mask"]), synced, np.int64),
        **sent,
    )


def version(forwards: int, between: int) -> int:
    """How often weights have been synced where that is done every so many forwards, and a rollout began by this one.

    Rounded up: a rollout that began within a gradient step has that step's number of forwards.
    """
    return -(-forwards // between)


def arrays(inputs: Mapping[str, Any], scored: Any) -> dict[str, Any]:
    """The contract's arrays out of the inputs of `_compute_loss` and of what its forward gave.

    [B, T] float32, the mask bool: completion tokens, without those that a tool wrote; advantages [B] or [B, T].
    """
    sent = {name: detached(inputs[of]) for name, of in INPUTS.items() if inputs.get(of) is not None}
    sent |= {name: detached(values) for name, values in zip(("logprobs", "entropy"), scored, strict=False)}
    mask, tool_mask = inputs["completion_mask"], inputs.get("tool_mask")
    sent["mask"] = (mask if tool_mask is None else mask * tool_mask) != 0
    return {name: values for name, values in sent.items() if values is not None}
