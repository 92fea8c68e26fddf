"""RLinf: a subclass of its FSDP actor worker that posts what its loss is computed from, each gradient step.

One `run_training` is one training step and one `training_step` in it one gradient step, whose `forward_batch` is called
with each micro-batch. Knows these and the keys of the micro-batch ([B, R]: response tokens alone; the mask is [B, T]
and ends with them). Imports nothing of RLinf.
"""

import functools
import re
from collections.abc import Callable
from typing import Any

from offpolicy_monitor.client.adapters import Logs
from offpolicy_monitor.client.adapters.shared.called import called
from offpolicy_monitor.client.adapters.shared.gathered import Gathered
from offpolicy_monitor.client.adapters.shared.layouts import all_rows
from offpolicy_monitor.client.adapters.shared.made import of_each
from offpolicy_monitor.client.adapters.shared.quiet import quiet
from offpolicy_monitor.client.adapters.shared.temperature import Scaling
from offpolicy_monitor.client.adapters.shared.unseen import Unseen

# The contract's name of each key of a micro-batch; all are [B, R].
KEYS = {"sampling_logprobs": "rollout_logprobs", "old_logprobs": "recomputed_logprobs", "advantages": "advantages"}
METHODS = ("run_training", "training_step", "forward_batch", "load_checkpoint")


def watched(worker: type, make: Callable[[], Logs]) -> type:
    """A subclass of `FSDPActor`, or of a user's own, to make the actor's group of.

    make  makes the monitor in each worker: `Monitor` (address and run from the environment), or a partial of it

    Sent: pi with its entropy; mu and pi_old where the configuration has them; advantages; the response mask. `step` is
    the number under which RLinf saves a checkpoint after it, on from that of a checkpoint which was loaded;
    `minibatch` counts the gradient steps on it; `policy_version` is the step, each of which begins with a sync of the
    weights. A shard is a rank: all are data-parallel. Raises TypeError for workers that train otherwise (Megatron's).
    """
    missing = [name for name in METHODS if not hasattr(worker, name)]
    if missing:
        raise TypeError(f"{worker.__name__} has no {' and no '.join(missing)}: RLinf's FSDPActor alone can be watched")
    return type(worker.__name__, (worker,), {"__doc__": worker.__doc__, **_methods(worker, make)})


def _methods(parent: Any, make: Callable[[], Logs]) -> dict[str, Any]:
    """What the subclass has in place of its parent's, which RLinf pickles into its workers."""

    def watch(self: Any) -> Watch:
        return of_each(self, Watch, make)

    @functools.wraps(parent.run_training)
    def run_training(self: Any, *arguments: Any, **named: Any) -> Any:
        watch(self).begin()
        return parent.run_training(self, *arguments, **named)

    @functools.wraps(parent.training_step)
    def training_step(self: Any, *arguments: Any, **named: Any) -> Any:
        watch(self).trains = True
        result = parent.training_step(self, *arguments, **named)
        watch(self).post()
        return result

    @functools.wraps(parent.forward_batch)
    def forward_batch(self: Any, *arguments: Any, **named: Any) -> Any:
        scored = parent.forward_batch(self, *arguments, **named)
        watch(self).collect(parent.forward_batch, (self, *arguments), named, scored)
        return scored

    @functools.wraps(parent.load_checkpoint)
    def load_checkpoint(self: Any, *arguments: Any, **named: Any) -> Any:
        watch(self).resume(*arguments, *named.values())
        return parent.load_checkpoint(self, *arguments, **named)

    functions = (run_training, training_step, forward_batch, load_checkpoint)
    return dict(zip(METHODS, functions, strict=True))


class Watch:
    """Counts the training steps of one worker, and the gradient steps of each."""

    def __init__(self, worker: Any, monitor: Logs) -> None:
        self.worker, self.monitor, self.gathered = worker, monitor, Gathered()
        self.step, self.minibatch, self.trains = 0, 0, False
        self.unseen = Unseen("RLinf's forward_batch", "training_step of this worker does not call it")
        self.scaling = Scaling("RLinf", "it has no setting of vLLM's logprobs_mode: sample with SGLang, or at 1")

    def resume(self, *given: Any) -> None:
        """A checkpoint is loaded: after `.../global_step_N/actor` steps go on from N."""
        found = re.search(r"global_step_(\d+)", " ".join(map(str, given)))
        self.step = int(found[1]) if found else self.step

    def begin(self) -> None:
        """The training on one rollout begins."""
        self.step, self.minibatch, self.gathered = self.step + 1, 0, Gathered()

    def collect(self, forward: Callable[..., Any], arguments: Any, named: Any, scored: Any) -> None:
        """One micro-batch of a gradient step. Outside of one, RLinf recomputes pi_old and the reference in this way."""
        if self.trains:
            self.unseen.forward()
            _collect(self.monitor, self, forward, arguments, named, scored)

    def post(self) -> None:
        """A gradient step is over."""
        self.trains = False
        self.unseen.step()
        _post(self.monitor, self)


@quiet
def _collect(monitor: Logs, watch: Watch, forward: Callable[..., Any], arguments: Any, named: Any, scored: Any) -> None:
    batch = called(forward, arguments, named)["m_batch"]
    logprobs, entropy = scored
    sent = {name: batch.get(key) for name, key in KEYS.items()} | {"logprobs": logprobs}
    sent["mask"] = batch["response_mask"][:, -logprobs.shape[1] :] != 0
    watch.gathered.add(all_rows(sent | {"entropy": None if is_packed(watch.worker) else entropy}))


@quiet
def _post(monitor: Logs, watch: Watch) -> None:
    minibatch, watch.minibatch = watch.minibatch, watch.minibatch + 1
    worker, has_mu = watch.worker, "sampling_logprobs" in watch.gathered.rows
    if has_mu:
        watch.scaling.look(worker.cfg.algorithm.sampling_params.temperature, mu=is_scaled(worker.cfg), pi=True)
    numbers = {"minibatch": minibatch, "minibatches": worker.n_mini_batches, "policy_version": watch.step}
    watch.gathered.post(monitor, (worker._rank, worker._world_size), step=watch.step, **numbers)


def is_scaled(config: Any) -> bool | None:
    """Whether mu is after the temperature: SGLang's is, vLLM's as RLinf asks for it is not; None: not known."""
    return {"sglang": True, "vllm": False}.get(config.rollout.rollout_backend)


def is_packed(worker: Any) -> bool:
    """Whether the worker packs its rows: RLinf then moves log-probs to their tokens, and leaves the entropy behind."""
    return bool(worker.enable_dynamic_batch_size or worker.variable_seq_lengths)
