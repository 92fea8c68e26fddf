"""rLLM: a subclass of the backend that its unified trainer trains with, verl's or Tinker's, in the trainer's process.

`process_backend_batch` computes log-probs, once or several times per step, and `update_policy` is the gradient step;
both are given the trainer's state. Knows its fields, and that verl's batch is a DataProto and Tinker's a list of
datums, which are read as the adapters of these two read them. Imports nothing of rLLM.
"""

import functools
from collections.abc import Callable
from typing import Any

from offpolicy_monitor.client.adapters import Logs
from offpolicy_monitor.client.adapters.shared.called import called
from offpolicy_monitor.client.adapters.shared.collector import before
from offpolicy_monitor.client.adapters.shared.gathered import Gathered
from offpolicy_monitor.client.adapters.shared.made import of_each
from offpolicy_monitor.client.adapters.shared.quiet import quiet
from offpolicy_monitor.client.adapters.shared.unseen import Unseen
from offpolicy_monitor.client.adapters.tinker_cookbook import rows
from offpolicy_monitor.client.adapters.verl import log_rollout

ABSENT = (
    "the backend has no pi to give (Fireworks' has not), or verl's is in bypass mode, where old_log_probs are mu: "
    "there the policy loss of its workers has pi"
)


def watched(backend: type, make: Callable[[], Logs]) -> type:
    """A subclass of `VerlBackend` or `TinkerBackend` to take its place where rLLM launches it.

    make  makes the monitor where the trainer runs: `Monitor` (address and run from the environment), or a partial of it

    Sent: with verl mu and pi_old of each rollout, as verl's `log_rollout` does; with Tinker mu and pi of each gradient
    step; advantages; the mask. `step` is rLLM's `global_step`; `policy_version` the step before, and rLLM's
    `weight_version` in asynchronous training. One process posts it all.
    """
    return type(backend.__name__, (backend,), {"__doc__": backend.__doc__, **_methods(backend, make)})


def _methods(parent: Any, make: Callable[[], Logs]) -> dict[str, Any]:
    """What the subclass has in place of its parent's; with verl Ray pickles it into the process that trains."""

    def watch(self: Any) -> Watch:
        return of_each(self, Watch, make)

    @functools.wraps(parent.process_backend_batch)
    async def process_backend_batch(self: Any, *arguments: Any, **named: Any) -> Any:
        result = await parent.process_backend_batch(self, *arguments, **named)
        _collect(watch(self).monitor, watch(self), parent.process_backend_batch, (self, *arguments), named)
        return result

    @functools.wraps(parent.update_policy)
    async def update_policy(self: Any, *arguments: Any, **named: Any) -> Any:
        result = await parent.update_policy(self, *arguments, **named)
        _post(watch(self).monitor, watch(self), parent.update_policy, (self, *arguments), named)
        return result

    return {"process_backend_batch": process_backend_batch, "update_policy": update_policy}


class Watch:
    """What one backend has computed of the step under way."""

    def __init__(self, backend: Any, monitor: Logs) -> None:
        self.backend, self.monitor, self.gathered, self.step = backend, monitor, Gathered(), 0
        self.unseen = Unseen("rLLM's backend", ABSENT)


@quiet
def _collect(monitor: Logs, watch: Watch, method: Callable[..., Any], arguments: Any, named: Any) -> None:
    state = called(method, arguments, named)["trainer_state"]
    if state.global_step != watch.step:
        watch.step, watch.gathered = state.global_step, Gathered()
    pi = state.extra_info.get("training_logprobs")
    if pi:
        watch.unseen.forward()
        watch.gathered.add(rows(state.backend_batch, pi))


@quiet
def _post(monitor: Logs, watch: Watch, method: Callable[..., Any], arguments: Any, named: Any) -> None:
    state = called(method, arguments, named)["trainer_state"]
    numbers = {"step": state.global_step, "policy_version": version(watch.backend, state)}
    if hasattr(state.backend_batch, "batch") and not bypasses(watch.backend):
        watch.unseen.forward()
        log_rollout(monitor, state.backend_batch, **numbers)
    watch.unseen.step()
    watch.gathered.post(monitor, (0, 1), **numbers)


def version(backend: Any, state: Any) -> int:
    """How often weights were synced before this step: after each, or as often as the trainer's state counts."""
    asynchronous = backend.config.rllm.get("async_training", {}).get("enable", False)
    return int(state.weight_version) if asynchronous else before(state.global_step)


def bypasses(backend: Any) -> bool:
    """Whether pi_old is a copy of mu."""
    correction = getattr(getattr(backend, "algorithm_config", None), "rollout_correction", None)
    return bool(getattr(correction, "bypass_mode", False))
