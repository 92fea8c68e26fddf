"""verl: the batch at the trainer, and the policy loss in its workers; one of them or both.

The trainer's process has all sequences of a rollout with mu and pi_old, and no pi: `log_rollout` posts them. The
workers compute pi at each gradient step beside pi_old, and no mu: `watched_loss` stands around a policy loss of
verl's registry and posts those. Knows verl's field names (padded [B, R], response tokens alone), imports nothing of it.
`verl_workers` has all three from one hook.
"""

import functools
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from offpolicy_monitor.client.adapters import Logs
from offpolicy_monitor.client.adapters.shared.collector import Collector, before
from offpolicy_monitor.client.adapters.shared.layouts import all_rows, detached
from offpolicy_monitor.client.adapters.shared.place import Place, of_process
from offpolicy_monitor.client.adapters.shared.quiet import quiet
from offpolicy_monitor.client.adapters.shared.unseen import Unseen

PolicyLoss = Callable[..., tuple[Any, dict[str, Any]]]

# The contract's name of each field of the trainer's batch; all are [B, R].
FIELDS = {
    "sampling_logprobs": "rollout_log_probs",
    "old_logprobs": "old_log_probs",
    "mask": "response_mask",
    "advantages": "advantages",
}
# What verl tells of each answer [B]: the step after which the weights were synced that it began with; None for some.
VERSIONS = "min_global_steps"

NOT_THERE = (
    "the batch has no rollout_log_probs (rollout.calculate_log_probs=True brings them), or old_log_probs are the same "
    "to the bit, as in bypass mode, where watched_loss(..., bypass=True) gives the total gap"
)
NOT_CALLED = (
    "policy_loss.loss_mode must be the name that it is registered by; a process that trains another model, as a "
    "critic's, may ignore this"
)
_unseen: WeakKeyDictionary[Logs, Unseen] = WeakKeyDictionary()


@quiet
def log_rollout(
    monitor: Logs,
    batch: Any,
    *,
    step: int,
    minibatches: int | None = None,
    shards: int = 1,
    policy_version: int | None = None,
) -> None:
    """Post mu and pi_old of one rollout as minibatch 0 of `step` (the trainer's `global_steps`).

    `batch` is the trainer's DataProto once `old_log_probs` is computed (and `advantages`, where they are wanted).
    Where `watched_loss` posts to the same run, `shards` is the number of its shards, since those of one step share
    one number; the batch is then split into as many. `minibatches` counts this one too. `policy_version` is the number
    that weights were last synced under (None: the step before, as in the trainers that sync after every step).
    Nothing is posted where pi_old is mu to the bit at every token, as in bypass mode: a gap of zero would be no
    measurement.
    """
    fields, unseen = batch.batch, _unseen.setdefault(monitor, Unseen("verl's log_rollout", NOT_THERE))
    if "rollout_log_probs" not in fields or _bypassed(fields):
        unseen.step()
        return
    unseen.forward()
    arrays = {name: detached(fields[of]) for name, of in FIELDS.items() if of in fields} | versions(batch)
    version = before(step) if policy_version is None else policy_version
    size = len(arrays["old_logprobs"])
    for shard in range(shards):
        part = slice(size * shard // shards, size * (shard + 1) // shards)
        mine = {name: array[part] for name, array in arrays.items()}
        numbers = {"minibatches": minibatches, "shard": shard, "shards": shards, "policy_version": version}
        monitor.log(step=step, minibatch=0, **numbers, **mine)


def same(mu: Any, old: Any, mask: Any) -> Any:
    """Whether two [B, R] are the same to the bit wherever a mask [B, R] is not 0, as it is somewhere: bool []."""
    return ((mu == old) | (mask == 0)).all() & (mask != 0).any()


def _bypassed(fields: Any) -> bool:
    return bool(same(fields["rollout_log_probs"], fields["old_log_probs"], fields["response_mask"]))


def versions(batch: Any) -> dict[str, NDArray[np.int64]]:
    """`policy_versions` [B] int64 of a batch, -1 for an answer whose engine told none; nothing where none did."""
    told = getattr(batch, "non_tensor_batch", {}).get(VERSIONS, ())
    if not any(version is not None for version in told):
        return {}
    return {"policy_versions": np.array([-1 if version is None else version for version in told], np.int64)}


def watched_loss(
    loss: PolicyLoss,
    monitor: Logs,
    *,
    minibatches: int = 1,
    first_step: int = 1,
    bypass: bool = False,
    place: Place = of_process,
) -> PolicyLoss:
    """A policy loss that is `loss` and posts what it was given, one shard per gradient step.

    minibatches  gradient steps of one training step: train batch size / mini batch size * epochs
    first_step   verl's first `global_steps` is 1; a resumed run goes on at another
    bypass       in bypass mode `old_log_prob` is mu and is posted as that
    place        which rank posts; `in_groups_of(n)` where n neighbouring ranks hold the same tokens

    They are posted as minibatches 1, 2, ... of the step: minibatch 0 is `log_rollout`'s. `policy_version` is the step
    before, after which verl synced its weights.
    """
    unseen = Unseen("verl's watched loss", NOT_CALLED)
    collector = Collector(
        monitor, first_step=first_step, minibatches=minibatches, first_minibatch=1, place=place, unseen=unseen
    )

    @functools.wraps(loss)
    def watched(old_log_prob: Any, log_prob: Any, advantages: Any, response_mask: Any, *rest: Any, **named: Any) -> Any:
        _collect(monitor, collector, bypass, old_log_prob, log_prob, advantages, response_mask)
        return loss(old_log_prob, log_prob, advantages, response_mask, *rest, **named)

    return watched


@quiet
def _collect(monitor: Logs, collector: Collector, bypass: bool, old: Any, pi: Any, advantages: Any, mask: Any) -> None:
    anchor = "sampling_logprobs" if bypass else "old_logprobs"
    arrays = {anchor: old, "logprobs": pi, "advantages": advantages, "mask": mask}
    collector.add(all_rows(arrays))
