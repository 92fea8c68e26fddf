"""NeMo-RL: the loss function, wrapped before training starts, posts what every worker computes its loss from.

Knows the keys of NeMo-RL's batch (padded [B, S]; position t holds what belongs to token t, so that the first one holds
nothing) and that the log-probs a loss is given are [B, S-1], those of tokens 1 to S-1. Imports nothing of NeMo-RL.
"""

from collections.abc import Callable, Mapping
from typing import Any

from offpolicy_monitor.client.adapters import Logs
from offpolicy_monitor.client.adapters.place import Place, of_process
from offpolicy_monitor.client.adapters.shared.carried import Carried
from offpolicy_monitor.client.adapters.shared.layouts import all_rows
from offpolicy_monitor.client.adapters.shared.quiet import quiet

# The contract's name of each key of the batch; all are [B, S].
KEYS = {"sampling_logprobs": "generation_logprobs", "old_logprobs": "prev_logprobs", "advantages": "advantages"}


def watched(
    loss: Any,
    make: Callable[[], Logs],
    *,
    minibatches: int = 1,
    first_step: int = 1,
    place: Place = of_process,
) -> "WatchedLoss":
    """A loss function that is `loss` and posts what it was given, one shard per rank and gradient step.

    make         makes the monitor in each worker: `Monitor` (address and run from the environment), or a partial of it
    minibatches  gradient steps of one training step: prompts * generations a step / train_global_batch_size
    first_step   NeMo-RL's logs call the first step 1; a resumed run goes on at `total_steps` + 1
    place        which rank posts: `in_groups_of(n)` where tensor- and context-parallel sizes multiply to n,
                 `in_stages(n, stages)` with a pipeline

    `policy_version` counts the steps before this one, as `weight_version` of NeMo-RL's asynchronous training does.
    """
    return WatchedLoss(loss, Carried(make, first_step=first_step, minibatches=minibatches, place=place))


class WatchedLoss:
    """Has every attribute of the loss that it stands for, since workers choose their way by them."""

    def __init__(self, loss: Any, carried: Carried) -> None:
        self.loss, self.carried = loss, carried

    def __getattr__(self, name: str) -> Any:
        if name == "loss" or name.startswith("__"):  # while it is unpickled, before it has a loss to ask
            raise AttributeError(name)
        return getattr(self.loss, name)

    def __call__(self, next_token_logprobs: Any, data: Mapping[str, Any], *arguments: Any, **named: Any) -> Any:
        """The loss's own result for one micro-batch, or for one sequence of a packed one."""
        collector = self.carried.collector()
        _collect(collector.monitor, collector, self.loss, next_token_logprobs, data)
        return self.loss(next_token_logprobs, data, *arguments, **named)


@quiet
def _collect(monitor: Logs, collector: Any, loss: Any, logprobs: Any, data: Mapping[str, Any]) -> None:
    sent = arrays(logprobs, data, on_policy=getattr(loss, "force_on_policy_ratio", False))
    collector.add(all_rows(sent))


def arrays(logprobs: Any, data: Mapping[str, Any], on_policy: bool = False) -> dict[str, Any]:
    """The contract's arrays [B, S-1] out of a loss's log-probs [B, S-1] and its batch [B, S].

    The mask is the tokens' times the samples'. With `on_policy` (`force_on_policy_ratio`) the batch has zeros in place
    of pi_old, and none is sent.
    """
    sent = {name: data[key][:, 1:] for name, key in KEYS.items() if not (on_policy and name == "old_logprobs")}
    mask = data["token_mask"][:, 1:] * data["sample_mask"][:, None]
    return {**sent, "logprobs": logprobs, "mask": mask != 0}
