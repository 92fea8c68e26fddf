"""slime: functions that slime loads by their path, so that options alone add the monitor to a run.

`postprocess` (once per rollout, on every rank) posts mu and pi_old as slime recomputed them; `tis` (every micro-batch)
posts them where pi_old is computed in the training forward alone, and leaves the loss as it would be without it.
Both have lists of 1-D response rows, S sequences of n tokens. Knows slime's names; imports slime and Megatron only
when slime calls. The monitor is made from OFFPOLICY_URL and OFFPOLICY_RUN, or given by `use`.
"""

import functools
import importlib
from collections.abc import Mapping
from typing import Any

from offpolicy_monitor.client.adapters import Logs
from offpolicy_monitor.client.adapters.shared.collector import Collector
from offpolicy_monitor.client.adapters.shared.layouts import detached
from offpolicy_monitor.client.adapters.shared.made import made
from offpolicy_monitor.client.adapters.shared.quiet import quiet
from offpolicy_monitor.client.adapters.shared.unseen import Unseen

# The contract's name of each list of the rollout's data. Under context parallelism a rank has a part of each row.
ROWS = {"sampling_logprobs": "rollout_log_probs", "old_logprobs": "log_probs", "advantages": "advantages"}
PARALLEL = "megatron.core.parallel_state"
GATHER = "slime.backends.megatron_utils.cp_utils"
CORRECTION = "slime.backends.megatron_utils.loss"

_given: list[Logs] = []


def use(monitor: Logs) -> None:
    """Post to this monitor from now on, instead of one made from the environment."""
    _given[:] = [monitor]
    _collector.cache_clear()
    _unseen.cache_clear()


def postprocess(args: Any, rollout_id: int, rollout_data: Mapping[str, Any]) -> None:
    """For `--rollout-data-postprocess-path`: post mu and pi_old of this rank's sequences under step `rollout_id`."""
    _log_rollout(_monitor(), args, rollout_id, rollout_data)


def tis(args: Any, *, pg_loss: Any, loss_masks: Any, **named: Any) -> tuple[Any, Any, dict[str, Any]]:
    """For `--custom-tis-function-path`: post mu and pi_old of every micro-batch, one shard per gradient step.

    Gives what slime's own correction gives under `--use-tis`, and the loss unchanged without it.
    """
    _collect(_monitor(), args, {"mask": loss_masks, **named})
    if not args.use_tis:
        return pg_loss, loss_masks, {}
    corrected = importlib.import_module(CORRECTION).vanilla_tis_function
    result: tuple[Any, Any, dict[str, Any]] = corrected(args, pg_loss=pg_loss, loss_masks=loss_masks, **named)
    return result


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


def _monitor() -> Logs:
    if not _given:
        _given.append(made(lambda: importlib.import_module("offpolicy_monitor.client").Monitor()))
    return _given[0]


@quiet
def _log_rollout(monitor: Logs, args: Any, rollout_id: int, data: Mapping[str, Any]) -> None:
    if not (data.get("log_probs") and data.get("rollout_log_probs")):
        _unseen().step()
        return
    _unseen().forward()
    arrays = {name: _whole(data[of], data) for name, of in ROWS.items() if data.get(of)}
    where = place()
    if where is not None:
        masks = list(data["loss_masks"])
        numbers = {"shard": where[0], "shards": where[1], "policy_version": version(rollout_id, _interval(args))}
        monitor.log(step=rollout_id, minibatch=0, mask=masks, **numbers, **arrays)


@quiet
def _collect(monitor: Logs, args: Any, batch: Mapping[str, Any]) -> None:
    rows = {"sampling_logprobs": batch["rollout_log_probs"], "old_logprobs": batch["train_log_probs"]}
    arrays = {name: _whole(values, batch) for name, values in rows.items()}
    first, minibatches = getattr(args, "start_rollout_id", None) or 0, getattr(args, "num_steps_per_rollout", None) or 1
    _collector(first, minibatches, _interval(args)).add({"mask": list(batch["mask"]), **arrays})


@functools.cache
def _unseen() -> Unseen:
    return Unseen("slime's postprocess", "rollouts have no log_probs, which --get-mismatch-metrics recomputes")


@functools.cache
def _collector(first_step: int, minibatches: int, interval: int) -> Collector:
    counts = functools.partial(version, interval=interval)
    return Collector(_monitor(), first_step=first_step, minibatches=minibatches, version=counts, place=place)


def version(rollout_id: int, interval: int) -> int:
    """How often weights were synced before a rollout was trained on, but for the first time: after every so many."""
    return rollout_id // interval


def _interval(args: Any) -> int:
    return getattr(args, "update_weights_interval", None) or 1


def _whole(rows: Any, batch: Mapping[str, Any]) -> list[Any]:
    """S rows [n]; where context parallelism has cut them, put together by slime's own collective, on all its ranks."""
    megatron = importlib.import_module(PARALLEL)
    if megatron.get_context_parallel_world_size() == 1:
        return [detached(row) for row in rows]
    gather = importlib.import_module(GATHER).all_gather_with_cp
    sizes = zip(rows, batch["total_lengths"], batch["response_lengths"], strict=True)
    return [detached(gather(row, total, response)) for row, total, response in sizes]
