"""ROLL: a subclass of an actor worker that posts what its loss is computed from, each gradient step.

The loss of every ROLL pipeline asks `get_old_log_probs_with_cache` for pi_old once a micro-batch, with the batch and
pi in hand; one `train_step` of the strategy is one gradient step. Knows these and the keys of the batch ([B, T-1]:
position t belongs to token t + 1; the response mask alone is [B, T]). Imports nothing of ROLL.
"""

import functools
from collections.abc import Callable
from typing import Any

from offpolicy_monitor.client.adapters import Logs
from offpolicy_monitor.client.adapters.shared.gathered import Gathered
from offpolicy_monitor.client.adapters.shared.layouts import all_rows
from offpolicy_monitor.client.adapters.shared.made import made
from offpolicy_monitor.client.adapters.shared.quiet import quiet
from offpolicy_monitor.client.adapters.shared.temperature import VLLM, Scaling
from offpolicy_monitor.client.adapters.shared.unseen import Unseen

# ROLL's trainer does not divide its logits by the temperature.
SCALED = "actor_infer.generating_args.temperature: 1.0, or vLLM with raw_logprobs, its default, makes them alike"


def watched(worker: type, make: Callable[[], Logs]) -> type:
    """A subclass of an actor worker (RLVR, agentic, or a user's own) for `actor_train.worker_cls`.

    make  makes the monitor in each worker: `Monitor` (address and run from the environment), or a partial of it

    Sent: pi; pi_old where it is another tensor than pi; mu where the engine returned it; advantages; the response mask.
    `step` is ROLL's `global_step`, `minibatch` counts the gradient steps on it, `policy_version` the updates of the
    engines' weights, one every `model_update_frequency` steps. A shard is a data-parallel rank; the
    first of its tensor- and context-parallel ranks posts, on the last stage of a pipeline; ROLL gathers
    context-parallel parts before the loss.
    """
    parent: Any = worker

    # ROLL marks the methods that it calls remotely by attributes of the function, which `wraps` carries over.
    @functools.wraps(parent.train_step)
    def train_step(self: Any, data: Any) -> Any:
        if not hasattr(self, "_offpolicy"):
            self._offpolicy = Watch(self, made(make))
        self._offpolicy.begin(int(data.meta_info.get("global_step", 0)))
        return parent.train_step(self, data)

    @functools.wraps(parent.get_old_log_probs_with_cache)
    def get_old_log_probs_with_cache(self: Any, data: Any, log_probs: Any) -> Any:
        old = parent.get_old_log_probs_with_cache(self, data, log_probs)
        if hasattr(self, "_offpolicy"):
            self._offpolicy.collect(data, log_probs, old)
        return old

    methods = {"train_step": train_step, "get_old_log_probs_with_cache": get_old_log_probs_with_cache}
    return type(worker.__name__, (worker,), {"__doc__": worker.__doc__, **methods})


class Watch:
    """Counts the gradient steps of one worker, by standing around the `train_step` of its strategy."""

    def __init__(self, worker: Any, monitor: Logs) -> None:
        self.worker, self.monitor, self.gathered = worker, monitor, Gathered()
        self.step, self.minibatch = 0, 0
        self.unseen = Unseen("ROLL's get_old_log_probs_with_cache", "the worker's loss does not ask it for pi_old")
        self.scaling = Scaling("ROLL's watched worker", SCALED)
        self.train = worker.strategy.train_step
        worker.strategy.train_step = self.training

    def begin(self, step: int) -> None:
        """Begin the training of one rollout."""
        self.step, self.minibatch = step, 0

    def collect(self, data: Any, log_probs: Any, old: Any) -> None:
        """One micro-batch."""
        self.unseen.forward()
        _collect(self.monitor, self, data, log_probs, old)

    def training(self, *arguments: Any, **named: Any) -> Any:
        """The strategy's own metrics of one gradient step."""
        metrics = self.train(*arguments, **named)
        _post(self.monitor, self)
        return metrics


@quiet
def _collect(monitor: Logs, watch: Watch, data: Any, log_probs: Any, old: Any) -> None:
    sent = arrays(data.batch, log_probs, old)
    watch.gathered.add(all_rows(sent))
    if "sampling_logprobs" in sent and not watch.scaling.told:
        _look(monitor, watch)


@quiet
def _look(monitor: Logs, watch: Watch) -> None:
    """SGLang's log-probs are after the temperature, vLLM's as its `logprobs_mode` says."""
    infer = getattr(getattr(watch.worker, "pipeline_config", None), "actor_infer", None)
    if infer is not None:
        engine = infer.strategy_args
        mode = (engine.strategy_config or {}).get("logprobs_mode", "raw_logprobs")
        mu = {"vllm": VLLM.get(mode), "sglang": True}.get(engine.strategy_name)
        watch.scaling.look(infer.generating_args.temperature, mu=mu, pi_old=False, pi=False)


@quiet
def _post(monitor: Logs, watch: Watch) -> None:
    minibatch, watch.minibatch = watch.minibatch, watch.minibatch + 1
    numbers = {
        "minibatch": minibatch,
        "policy_version": version(watch.step, getattr(watch.worker, "worker_config", None)),
    }
    where = place(watch.worker.rank_info)
    if where is not None and is_last_stage(watch.worker.rank_info):
        watch.unseen.step()
    watch.gathered.post(monitor, where, step=watch.step, **numbers)


def version(step: int, config: Any) -> int:
    """How often engines have been given new weights: ROLL does so before every so many steps, from step 0 on."""
    return step // max(1, int(getattr(config, "model_update_frequency", 1)))


def arrays(batch: Any, log_probs: Any, old: Any) -> dict[str, Any]:
    """The contract's arrays [B, T-1] of one micro-batch.

    Where ROLL does not recompute pi_old, the first epoch's forward is both it and pi, one tensor under two names. It
    is then sent as pi alone: a gap of zero would be no measurement.
    """
    mu = batch.get("infer_logprobs", None)
    sent = {
        "sampling_logprobs": mu if mu is not None and len(mu) else None,
        "old_logprobs": None if old.data_ptr() == log_probs.data_ptr() else old,
        "logprobs": log_probs,
        "advantages": batch.get("advantages", None),
        "mask": batch["response_mask"][:, 1:] != 0,
    }
    return {name: array for name, array in sent.items() if array is not None}


def is_last_stage(rank: Any) -> bool:
    """Whether a loss is computed here, where a pipeline has stages."""
    return bool(getattr(rank, "pp_rank", 0) == getattr(rank, "pp_size", 1) - 1)


def place(rank: Any) -> tuple[int, int] | None:
    """(data-parallel rank, their number), or None where another rank has the same tokens."""
    return (rank.dp_rank, rank.dp_size) if rank.tp_rank == 0 and rank.cp_rank == 0 else None
