"""SkyRL: a policy loss (mu, pi_old and pi of each gradient step) or a callback (mu and pi_old of each step).

Knows the arguments of SkyRL's policy losses and the fields of its training batch (padded [B, R], response tokens
alone); imports nothing of it. The loss runs in the workers, the callback in the trainer's process.
"""

import copy
from collections.abc import Callable
from typing import Any

from offpolicy_monitor.client.adapters import Logs
from offpolicy_monitor.client.adapters.shared.carried import Carried
from offpolicy_monitor.client.adapters.shared.collector import before
from offpolicy_monitor.client.adapters.shared.ends import AtEnd
from offpolicy_monitor.client.adapters.shared.layouts import all_rows, detached
from offpolicy_monitor.client.adapters.shared.place import Place, of_process
from offpolicy_monitor.client.adapters.shared.quiet import quiet
from offpolicy_monitor.client.adapters.shared.temperature import VLLM, Scaling
from offpolicy_monitor.client.adapters.shared.unseen import Unseen

PolicyLoss = Callable[..., tuple[Any, dict[str, Any]]]

# The contract's name of each field of the training batch.
FIELDS = {
    "sampling_logprobs": "rollout_logprobs",
    "old_logprobs": "action_log_probs",
    "advantages": "advantages",
    "mask": "loss_mask",
}


# SkyRL divides its logits by the temperature, and starts vLLM with vLLM's own default.
SCALED = "generator.inference_engine.engine_init_kwargs.logprobs_mode=processed_logprobs makes them alike"


def watched(
    loss: PolicyLoss,
    make: Callable[[], Logs],
    *,
    stands_for: str | None = None,
    minibatches: int = 1,
    first_step: int = 1,
    logprobs_mode: str = "raw_logprobs",
    place: Place = of_process,
) -> "WatchedLoss":
    """A policy loss that is `loss` and posts what it was given, one shard per rank and gradient step.

    make         makes the monitor in each worker: `Monitor` (address and run from the environment), or a partial of it
    stands_for   the registered name of `loss`: losses of SkyRL look into the configuration for their own name
    minibatches  gradient steps of one training step: train_batch_size / policy_mini_batch_size * epochs
    first_step   SkyRL's first `global_step` is 1; a resumed run goes on at another
    logprobs_mode  vLLM's, where the run sets another: a loss cannot see it, and warns where pi alone is scaled
    place        which rank posts; `in_groups_of(n)` where n neighbouring ranks hold the same tokens

    `policy_version` counts the steps before this one, after each of which SkyRL syncs its weights.
    """
    carried = Carried(make, first_step=first_step, minibatches=minibatches, place=place)
    return WatchedLoss(loss, stands_for, carried, logprobs_mode)


class WatchedLoss:
    """What is registered; SkyRL pickles it into its workers."""

    def __init__(self, loss: PolicyLoss, stands_for: str | None, carried: Carried, logprobs_mode: str) -> None:
        self.loss, self.stands_for, self.carried = loss, stands_for, carried
        self.logprobs_mode, self.scaling = logprobs_mode, Scaling("SkyRL's watched loss", SCALED)

    def __call__(
        self, log_probs: Any, old_log_probs: Any, advantages: Any, config: Any, *arguments: Any, **named: Any
    ) -> tuple[Any, dict[str, Any]]:
        """The loss's own result for one micro-batch; `loss_mask` and `rollout_logprobs` come by name."""
        collector = self.carried.collector()
        _collect(collector.monitor, collector, log_probs, old_log_probs, advantages, named)
        if named.get("rollout_logprobs") is not None:
            self.scaling.look(getattr(config, "temperature", None), mu=VLLM.get(self.logprobs_mode), pi=True)
        if self.stands_for is not None:
            config = copy.copy(config)
            config.policy_loss_type = self.stands_for
        return self.loss(log_probs, old_log_probs, advantages, config, *arguments, **named)


@quiet
def _collect(monitor: Logs, collector: Any, pi: Any, old: Any, advantages: Any, named: dict[str, Any]) -> None:
    arrays = {
        "sampling_logprobs": named.get("rollout_logprobs"),
        "old_logprobs": old,
        "logprobs": pi,
        "advantages": advantages,
        "mask": named.get("loss_mask"),
    }
    collector.add(all_rows(arrays))


LACKS = f"the batch has no {FIELDS['sampling_logprobs']} or no {FIELDS['old_logprobs']}"


class Ending(AtEnd):
    """A `TrainingCallback` beside a watched loss: says from the trainer's process that the run of the workers ended."""

    def __init__(self, monitor: Logs) -> None:
        super().__init__(monitor, for_run=True)


class Callback(AtEnd):
    """A `TrainingCallback` for `trainer.add_callback`: posts the whole batch of a step from the trainer's process.

    One shard per step, with mu, pi_old and advantages, and at the end that the run has ended. Not beside a watched loss
    in the same run: both would post the same tokens.
    """

    def __init__(self, monitor: Logs) -> None:
        super().__init__(monitor)
        self.unseen, self.scaling = Unseen("SkyRL's callback", LACKS), Scaling("SkyRL's callback", SCALED)

    def on_step_end(self, trainer: Any, callback_input: Any, control: Any) -> None:
        """Post the step that has ended; nothing where SkyRL skipped the forward of pi_old."""
        _post(self.monitor, callback_input.global_step, callback_input.batch, self.unseen)
        _look(self.monitor, self.scaling, getattr(trainer, "cfg", None))


@quiet
def _post(monitor: Logs, step: int, batch: Any, unseen: Unseen) -> None:
    arrays = {name: batch.get(field) for name, field in FIELDS.items()}
    if arrays["sampling_logprobs"] is None or arrays["old_logprobs"] is None:
        unseen.step()
    else:
        unseen.forward()
        sent = {name: detached(array) for name, array in arrays.items() if array is not None}
        monitor.log(step=step, policy_version=before(step), **sent)


@quiet
def _look(monitor: Logs, scaling: Scaling, config: Any) -> None:
    if config is not None:
        engine = config.generator.inference_engine.engine_init_kwargs or {}
        mode = engine.get("logprobs_mode", "raw_logprobs")
        scaling.look(config.trainer.algorithm.temperature, mu=VLLM.get(mode), pi_old=True)
