"""NeMo-RL: the loss function, wrapped before training starts, posts what every worker computes its loss from.

Knows the keys of NeMo-RL's batch (padded [B, S]; position t holds what belongs to token t, so that the first one holds
nothing) and that the log-probs a loss is given are [B, S-1], those of tokens 1 to S-1. Imports nothing of NeMo-RL.
"""

from collections.abc import Callable, Mapping
from typing import Any
from weakref import WeakKeyDictionary

from offpolicy_monitor.client.adapters import Logs
from offpolicy_monitor.client.adapters.shared.carried import Carried
from offpolicy_monitor.client.adapters.shared.collector import Collector
from offpolicy_monitor.client.adapters.shared.in_place import InPlaceOf
from offpolicy_monitor.client.adapters.shared.layouts import all_rows
from offpolicy_monitor.client.adapters.shared.made import Nowhere
from offpolicy_monitor.client.adapters.shared.place import Place, of_process
from offpolicy_monitor.client.adapters.shared.quiet import quiet
from offpolicy_monitor.client.adapters.shared.temperature import VLLM, Scaling

# The contract's name of each key of the batch; all are [B, S].
KEYS = {"sampling_logprobs": "generation_logprobs", "old_logprobs": "prev_logprobs", "advantages": "advantages"}


def watched(
    loss: Any,
    make: Callable[[], Logs],
    *,
    minibatches: int = 1,
    first_step: int = 1,
    place: Place = of_process,
    config: Any = None,
) -> "WatchedLoss":
    """A loss function that is `loss` and posts what it was given, one shard per rank and gradient step.

    make         makes the monitor in each worker: `Monitor` (address and run from the environment), or a partial of it
    minibatches  gradient steps of one training step: prompts * generations per step / train_global_batch_size
    first_step   NeMo-RL's logs call the first step 1; a resumed run goes on at `next_step(grpo_state)`
    place        which rank posts: `in_groups_of(n)` where tensor- and context-parallel sizes multiply to n,
                 `in_stages(n, stages)` with a pipeline
    config       NeMo-RL's `master_config`: looked at here for sides that differ in the sampling temperature

    `policy_version` counts the steps before this one, as `weight_version` of NeMo-RL's asynchronous training does.
    """
    if config is not None:
        _look(Nowhere(), config)
    return WatchedLoss(loss, Carried(make, first_step=first_step, minibatches=minibatches, place=place))


def next_step(state: Any) -> int:
    """The step that training goes on with: `total_steps` of what it saved, plus one. Release 0.7.0 has it in a dict."""
    return int(state["total_steps"] if isinstance(state, Mapping) else state.total_steps) + 1


@quiet
def _look(monitor: Logs, config: Any) -> None:
    """NeMo-RL divides the trainer's logits by the temperature; vLLM's log-probs are as its `logprobs_mode` says."""
    policy = config["policy"] if isinstance(config, Mapping) else config.policy
    generation = policy["generation"]
    mode = (generation.get("vllm_cfg") or {}).get("logprobs_mode") or "raw_logprobs"
    mu = VLLM.get(mode) if generation["backend"] == "vllm" else None
    advice = "policy.generation.vllm_cfg.logprobs_mode=processed_logprobs"
    Scaling("NeMo-RL's watched loss", advice).look(generation["temperature"], mu=mu, pi_old=True, pi=True)


class WatchedLoss(InPlaceOf):
    """What is sent to the workers, in the place of the loss."""

    def __init__(self, loss: Any, carried: Carried) -> None:
        super().__init__(loss)
        self.carried = carried

    def __call__(self, next_token_logprobs: Any, data: Mapping[str, Any], *arguments: Any, **named: Any) -> Any:
        """The loss's own result for one micro-batch, or for one sequence of a packed one."""
        collector = self.carried.collector()
        _collect(collector.monitor, collector, self.of, next_token_logprobs, data)
        return self.of(next_token_logprobs, data, *arguments, **named)


@quiet
def _collect(monitor: Logs, collector: Collector, loss: Any, logprobs: Any, data: Mapping[str, Any]) -> None:
    on_policy = getattr(loss, "force_on_policy_ratio", False)
    recomputed = _is_recomputed(collector, data) if on_policy else True
    if recomputed is not None:
        collector.add(all_rows(arrays(logprobs, data, recomputed=recomputed)))


# Whether the batches of a collector have a recomputed pi_old, once one with a token under the mask has told.
_recomputed: WeakKeyDictionary[Collector, bool] = WeakKeyDictionary()


def _is_recomputed(collector: Collector, data: Mapping[str, Any]) -> bool | None:
    """Whether pi_old is more than the zeros that NeMo-RL puts in its place, where it skips the recompute.

    A run does so at every step or at none: the device is waited for once. None until a token under the mask tells.
    """
    if collector not in _recomputed:
        under_mask = _mask(data)
        if not under_mask.any():
            return None
        _recomputed[collector] = bool((data["prev_logprobs"][:, 1:] * under_mask).any())
    return _recomputed[collector]


def _mask(data: Mapping[str, Any]) -> Any:
    """[B, S-1] bool: the tokens' mask times the samples'."""
    return data["token_mask"][:, 1:] * data["sample_mask"][:, None] != 0


def arrays(logprobs: Any, data: Mapping[str, Any], recomputed: bool = True) -> dict[str, Any]:
    """The contract's arrays [B, S-1] out of a loss's log-probs [B, S-1] and its batch [B, S].

    Without `recomputed` the batch has zeros in place of pi_old, and none is sent.
    """
    sent = {name: data[key][:, 1:] for name, key in KEYS.items() if recomputed or name != "old_logprobs"}
    return {**sent, "logprobs": logprobs, "mask": _mask(data)}
