"""slime: functions that slime loads by their path, so that options alone add the monitor to a run.

`loss`, `tis` and `before_step` are those of `slime_hooks`; `postprocess` (once per rollout, on every rank) posts mu and
pi_old as slime recomputed them. Knows slime's names; imports slime and Megatron only when slime calls. The monitor is
made from OFFPOLICY_URL and OFFPOLICY_RUN, or given by `use`.
"""

import functools
import importlib
from collections.abc import Mapping
from typing import Any

from offpolicy_monitor.client.adapters import Logs
from offpolicy_monitor.client.adapters.shared.quiet import quiet
from offpolicy_monitor.client.adapters.shared.slime_hooks import ROWS, Gather, Hooks, counting
from offpolicy_monitor.client.adapters.shared.unseen import Unseen

PARALLEL = "megatron.core.parallel_state"
GATHER = "slime.backends.megatron_utils.cp_utils"
LOSSES = ("slime.backends.megatron_utils.loss",)


def use(monitor: Logs) -> None:
    """Post to this monitor from now on, instead of one made from the environment."""
    _hooks.use(monitor)
    _recomputed.cache_clear()


def postprocess(args: Any, rollout_id: int, rollout_data: Mapping[str, Any]) -> None:
    """For `--rollout-data-postprocess-path`: post mu and pi_old of this rank's sequences under step `rollout_id`."""
    _log_rollout(_hooks.here.monitor(), args, rollout_id, rollout_data)


def place() -> tuple[int, int] | None:
    """The data-parallel rank and size, on the one rank of each tensor-, pipeline- and context-parallel group."""
    megatron = importlib.import_module(PARALLEL)
    if not _has_logprobs(megatron) or megatron.get_context_parallel_rank() != 0:
        return None
    ranks, size = megatron.get_data_parallel_rank, megatron.get_data_parallel_world_size
    return ranks(with_context_parallel=False), size(with_context_parallel=False)


def _has_logprobs(megatron: Any) -> bool:
    """Whether this rank is the one of its tensor-parallel group that has log-probs to give."""
    return bool(megatron.is_pipeline_last_stage()) and megatron.get_tensor_model_parallel_rank() == 0


def _gather(args: Any, batch: Mapping[str, Any]) -> Gather | None:
    if importlib.import_module(PARALLEL).get_context_parallel_world_size() == 1:
        return None
    whole = importlib.import_module(GATHER).all_gather_with_cp
    return lambda part, index: whole(part, batch["total_lengths"][index], batch["response_lengths"][index])


@quiet
def _log_rollout(monitor: Logs, args: Any, rollout_id: int, data: Mapping[str, Any]) -> None:
    _hooks.look(args)
    if not (data.get("log_probs") and data.get("rollout_log_probs")):
        _recomputed().step()
        return
    _recomputed().forward()
    _hooks.here.unseen.forward()
    arrays = _hooks.whole(args, {name: data.get(of) for name, of in ROWS.items()}, data)
    where = place()
    if where is not None:
        masks = list(data["loss_masks"])
        numbers = {"shard": where[0], "shards": where[1], "policy_version": counting(args).version(rollout_id)}
        monitor.log(step=rollout_id, minibatch=0, mask=masks, **numbers, **arrays)


@functools.cache
def _recomputed() -> Unseen:
    return Unseen("slime's postprocess", "rollouts have no log_probs, which --get-mismatch-metrics recomputes")


_hooks = Hooks("slime", LOSSES, place, _gather)
before_step, loss, tis = _hooks.before_step, _hooks.loss, _hooks.tis
