"""AReaL: what the PPO actor's loss is computed from, posted after each `train_batch` of its engine.

Stands around `train_batch`, which is one gradient step, and the loss that it is given. Knows the keys of the loss's
packed input; imports nothing of AReaL.

Shapes: T packed tokens of S sequences, cu_seqlens [S + 1]. Position t of the log-probs, the mask and the advantages
belongs to token t + 1 (AReaL rolls them by -1), that of `versions` to token t. Rows are posted by token: a sequence of
n tokens has the n - 1 that follow another one, log-probs [0, n-1) beside versions [1, n).
"""

import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from offpolicy_monitor.client.adapters import Logs
from offpolicy_monitor.client.adapters.shared.gathered import Gathered
from offpolicy_monitor.client.adapters.shared.layouts import lengths, split
from offpolicy_monitor.client.adapters.shared.quiet import quiet
from offpolicy_monitor.client.adapters.shared.stages import head_of_last
from offpolicy_monitor.client.adapters.shared.temperature import Scaling
from offpolicy_monitor.client.adapters.shared.unseen import Unseen

Engine = TypeVar("Engine")

# Whether the log-probs of an inference engine are after the temperature. A single controller hides which one it is.
SCALED = {"RemotevLLMEngine": False, "RemoteSGLangEngine": True}
ADVICE = "sample at gconfig.temperature=1 with actor.temperature=1, or by SGLang: vLLMConfig has no logprobs_mode"


def watch(engine: Engine, monitor: Logs) -> Engine:
    """Post every gradient step of a PPO actor's engine (FSDP, Megatron, Archon) to `monitor`; gives back the engine.

    Sent: pi with its entropy; mu and pi_old where they differ by more than their name (`sources`); advantages; the
    mask; the versions that generated each token. `step` and `policy_version` are the engine's version: AReaL raises
    it once per step. `minibatch` counts the gradient steps at one version. A shard is a data-parallel rank; its first
    rank that has a loss posts, and has the whole sequences: AReaL gathers context-parallel parts before the loss.
    """
    Watch(engine, monitor).attach()
    return engine


class Watch:
    """Counts the gradient steps at each version of one engine on one rank."""

    def __init__(self, engine: Any, monitor: Logs) -> None:
        self.engine, self.monitor, self.gathered = engine, monitor, Gathered()
        self.train_batch = engine.train_batch
        self.version, self.minibatch = -1, 0
        self.unseen = Unseen("AReaL's train_batch", "no micro-batch of this rank had a token under the mask")
        self.scaling = Scaling("AReaL's train_batch", ADVICE)

    def attach(self) -> None:
        """Take the place of the method on this engine, not on its class."""
        self.engine.train_batch = self.training

    def training(self, input_: Any, loss_fn: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """The engine's own statistics of one gradient step."""

        def losing(logprobs: Any, entropy: Any, data: Mapping[str, Any], *rest: Any, **more: Any) -> Any:
            self.unseen.forward()
            _collect(self.monitor, self, logprobs, entropy, data)
            return loss_fn(logprobs, entropy, data, *rest, **more)

        statistics = self.train_batch(input_, losing, *arguments, **named)
        _post(self.monitor, self)
        return statistics


@quiet
def _collect(monitor: Logs, watch: Watch, logprobs: Any, entropy: Any, data: Mapping[str, Any]) -> None:
    config, samples = watch.engine.config, type(getattr(watch.engine, "rollout_engine", None)).__name__
    watch.scaling.look(getattr(config, "temperature", 1.0), mu=SCALED.get(samples), pi_old=True, pi=True)
    named = {of: name for name, of in sources(config).items()}
    packed = {named[key]: data[key] for key in named if data.get(key) is not None}
    packed |= {"logprobs": logprobs, "entropy": entropy, "advantages": data["advantages"], "mask": data["loss_mask"]}
    watch.gathered.add(by_token(packed, data["cu_seqlens"], data.get("versions")))


@quiet
def _post(monitor: Logs, watch: Watch) -> None:
    version = int(watch.engine.get_version())
    watch.minibatch = watch.minibatch + 1 if version == watch.version else 0
    watch.version = version
    where = place(watch.engine)
    if where is not None:
        watch.unseen.step()
    watch.gathered.post(monitor, where, step=version, minibatch=watch.minibatch, policy_version=version)


def sources(config: Any) -> dict[str, str]:
    """Which key of the input holds which log-probs; AReaL's names mean other policies under other options.

    Decoupled: `logprobs` is the engine's, `prox_logp` the recomputed. Else both are the same tensor: the recomputed
    with `recompute_logprob`, the engine's without.
    """
    if config.use_decoupled_loss:
        return {"sampling_logprobs": "logprobs", "old_logprobs": "prox_logp"}
    return {"old_logprobs" if config.recompute_logprob else "sampling_logprobs": "logprobs"}


def by_token(packed: Mapping[str, Any], cu_seqlens: Any, versions: Any = None) -> dict[str, list[Any]]:
    """Rows [n - 1] of each sequence out of packed arrays [T], and of `versions` [T], which are not rolled."""
    sizes = [int(size) for size in lengths(cu_seqlens)]
    sent = {name: [row[:-1] for row in split(array, sizes)] for name, array in packed.items()}
    if versions is not None:
        sent["policy_versions"] = [row[1:] for row in split(versions, sizes)]
    return sent


def place(engine: Any) -> tuple[int, int] | None:
    """(data-parallel rank, their number), or None where another rank of the replica posts."""
    return (engine.data_parallel_rank, engine.data_parallel_world_size) if _heads(engine) else None


def _heads(engine: Any) -> bool:
    """Whether this rank is the first one of its replica that computes a loss.

    Archon alone says whether it has the last stage, which some of its schedules give to the first rank. Its ranks lie
    stage by stage, as Megatron's do.
    """
    stages = _stages(engine)
    if stages == 1:
        return bool(engine.is_data_parallel_head())
    ranks = sys.modules["torch.distributed"].get_process_group_ranks(engine.context_and_model_parallel_group)
    has_last = getattr(engine, "pp_has_last_stage", None)
    if has_last is None:
        return bool(engine.rank == head_of_last(ranks, stages))
    return bool(has_last) and ranks.index(engine.rank) % (len(ranks) // stages) == 0


def _stages(engine: Any) -> int:
    """The stages of the pipeline: FSDP has none, Megatron and Archon say so by different names."""
    megatron, archon = getattr(engine, "parallel_strategy", None), getattr(engine, "parallel_dims", None)
    return int(getattr(megatron, "pipeline_parallel_size", None) or getattr(archon, "pp", None) or 1)
