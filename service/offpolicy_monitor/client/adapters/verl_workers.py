"""verl's workers: mu, pi_old and pi of every gradient step of the actor, under the trainers of v1 and v0 alike.

`watch` stands around methods of verl's workers: where one is given its loss, trains on the batch of a step and on one
mini-batch of it, and hands its weights to the engines, which tells the step. The loss's data has mu and pi_old, its
model output pi. Knows those names, and imports verl when it is called.
"""

import functools
import importlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from offpolicy_monitor.client.adapters import Logs
from offpolicy_monitor.client.adapters.shared.gathered import Gathered
from offpolicy_monitor.client.adapters.shared.in_place import InPlaceOf
from offpolicy_monitor.client.adapters.shared.layouts import all_rows, detached
from offpolicy_monitor.client.adapters.shared.made import made
from offpolicy_monitor.client.adapters.shared.quiet import quiet
from offpolicy_monitor.client.adapters.shared.temperature import VLLM, Scaling
from offpolicy_monitor.client.adapters.shared.unseen import Unseen
from offpolicy_monitor.client.adapters.verl import FIELDS, VERSIONS, same
from offpolicy_monitor.client.counters import LOGGER

WORKERS = "verl.workers.engine_workers"
PADDING = "verl.workers.utils.padding"
TENSORDICTS = "verl.utils.tensordict_utils"
# The kind of model whose worker is given another loss.
CRITIC = "value_model"

BYPASSED = (
    "verl's old_log_probs are its rollout_log_probs to the bit in a whole gradient step, as in bypass mode: they are "
    "posted as mu alone, with the total gap. Where engine and trainer agree to the bit, watch(..., bypass=False)"
)
NO_MU = "verl's batch has no rollout_log_probs: actor_rollout_ref.rollout.calculate_log_probs=True brings them"
ELSEWHERE = "the engine of this strategy computes its loss without the function that its worker was given"
PROCESSED = "actor_rollout_ref.rollout.logprobs_mode=processed_logprobs gives mu after it, as verl computes the others"


def watch(make: Callable[[], Logs], *, minibatches: int | None = None, bypass: bool | None = None) -> None:
    """Post every gradient step of this process's actor from now on, one shard per data-parallel rank.

    make         makes the monitor in a worker that trains: `Monitor`, or a `functools.partial` of it
    minibatches  gradient steps of one training step; None: those of one call of `update_actor`, which is a training
                 step's own but under the trainer `separate_async`, where it is train_batch_size / ppo_mini_batch_size *
                 ppo_epochs
    bypass       whether `old_log_probs` are mu, so that there is no pi_old; None: where they are mu to the bit in a
                 whole gradient step

    A step is the one after that whose weights the engines got last, so that a resumed run goes on with its numbers;
    `policy_version` is the number of that one. Call it once per process, before workers are given their loss.
    """

    def new(loss: Any, engine: Any) -> Watched:
        return Watched(loss, engine, made(make), minibatches=minibatches, bypass=bypass)

    try:
        workers = importlib.import_module(WORKERS)
        trains, rolls = workers.TrainingWorker, workers.ActorRolloutRefWorker
        changed = (
            _given(trains.set_loss_fn, new),
            _of_a_step(trains.train_mini_batch),
            _of_a_gradient_step(trains.train_batch),
            _between_steps(rolls.update_weights),
        )
    except (ImportError, AttributeError) as error:
        LOGGER.warning("verl's workers are not as this adapter knows them, nothing is posted: %r", error)
    else:
        trains.set_loss_fn, trains.train_mini_batch, trains.train_batch, rolls.update_weights = changed


def _given(give: Callable[..., Any], watched: Callable[[Any, Any], "Watched"]) -> Callable[..., Any]:
    @functools.wraps(give)
    def set_loss_fn(worker: Any, loss_fn: Any) -> Any:
        config, engine = getattr(worker, "config", None), getattr(worker, "engine", None)
        critic = getattr(config, "model_type", None) == CRITIC
        return give(worker, loss_fn if critic else watched(loss_fn, engine))

    return set_loss_fn


def _of_a_step(train: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(train)
    def train_mini_batch(worker: Any, data: Any, *arguments: Any, **named: Any) -> Any:
        watched = _watched(worker)
        if watched is not None:
            watched.begins(data)
        return train(worker, data, *arguments, **named)

    return train_mini_batch


def _of_a_gradient_step(train: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(train)
    def train_batch(worker: Any, *arguments: Any, **named: Any) -> Any:
        watched = _watched(worker)
        if watched is not None:
            watched.trains()
        result = train(worker, *arguments, **named)
        if watched is not None:
            watched.ends()
        return result

    return train_batch


def _between_steps(update: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(update)
    async def update_weights(worker: Any, global_steps: int | None = None, *arguments: Any, **named: Any) -> Any:
        watched = _watched(getattr(worker, "actor", None))
        if watched is not None:
            watched.syncs(global_steps, worker)
        return await update(worker, global_steps, *arguments, **named)

    return update_weights


def _watched(worker: Any) -> "Watched | None":
    loss = getattr(worker, "loss_fn", None)
    return loss if isinstance(loss, Watched) else None


class Watched(InPlaceOf):
    """What a worker has for its loss."""

    def __init__(self, loss: Any, engine: Any, monitor: Logs, *, minibatches: int | None, bypass: bool | None) -> None:
        super().__init__(loss)
        self.engine, self.monitor, self.bypass = engine, monitor, bypass
        self.gathered, self.training = Gathered(), False
        self.synced: int | None = None
        self.step, self.minibatch, self.given, self.minibatches = 0, 0, minibatches, 1
        self.same: Any = None
        self.said: set[str] = set()
        self.scaling = Scaling("verl's workers", PROCESSED)
        self.unseen = Unseen("the loss of verl's workers", ELSEWHERE)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """The loss's own result for one micro-batch."""
        if self.training:
            self.unseen.forward()
            _collect(self.monitor, self, *arguments, **named)
        return self.of(*arguments, **named)

    def syncs(self, global_steps: int | None, worker: Any) -> None:
        """Weights go to the engines under the number of the step that has ended; None where they only come back."""
        if isinstance(global_steps, int):
            self.synced = global_steps
        _look_at_temperature(self.monitor, self, worker)

    def begins(self, data: Any) -> None:
        """The worker was given the sequences of a training step, or of a part of it."""
        step = self.step + 1 if self.synced is None else self.synced + 1
        if step != self.step:
            self.step, self.minibatch = step, 0
        self.minibatches = self.given or self.minibatch + 1
        if self.given is None:
            _count(self.monitor, self, data)

    def trains(self) -> None:
        """A gradient step begins."""
        self.training, self.same, self.gathered = True, None, Gathered()

    def ends(self) -> None:
        """It has ended, whether the optimizer has stepped or left it out."""
        self.training = False
        _post(self.monitor, self)
        self.minibatch += 1

    def say(self, text: str) -> None:
        """A warning in the log, once."""
        if text not in self.said:
            self.said.add(text)
            LOGGER.warning(text)


@quiet
def _collect(monitor: Logs, /, watched: Watched, model_output: Mapping[str, Any], data: Any, **_: Any) -> None:
    pi = importlib.import_module(PADDING).no_padding_2_padding(detached(model_output["log_probs"]), data)
    told = data.select(*(field for field in FIELDS.values() if field in data)).to_padded_tensor()
    arrays = {name: told[field] for name, field in FIELDS.items() if field in told}
    arrays["mask"] = arrays["mask"] != 0
    rows = all_rows({**arrays, "logprobs": pi})
    rows["policy_versions"] = [np.full(pi.shape[1], version, np.int64) for version in _versions(data, len(pi))]
    watched.gathered.add(rows)
    if "sampling_logprobs" not in arrays:
        watched.say(NO_MU)
        return
    alike = same(arrays["sampling_logprobs"], arrays["old_logprobs"], arrays["mask"])
    watched.same = alike if watched.same is None else watched.same & alike


def _versions(data: Any, count: int) -> list[int]:
    """Of each answer, the step after which weights were synced that it began with; -1 where its engine told none."""
    told = importlib.import_module(TENSORDICTS)
    found = told.get(data, VERSIONS)
    if found is None:  # v1 keeps them in each answer's own fields
        found = [fields.get(VERSIONS) for fields in told.get(data, "extra_fields", ())]
    return [-1 if version is None else int(version) for version in found] if len(found) == count else [-1] * count


@quiet
def _post(monitor: Logs, watched: Watched) -> None:
    bypassed = watched.bypass if watched.bypass is not None else watched.same is not None and bool(watched.same)
    if bypassed:
        watched.gathered.rows.pop("old_logprobs", None)
    if bypassed and watched.bypass is None:
        watched.say(BYPASSED)
    if all(version[:1] < 0 for version in watched.gathered.rows.get("policy_versions", ())):
        watched.gathered.rows.pop("policy_versions", None)
    engine = watched.engine
    leads = engine.is_mp_src_rank_with_outputs()
    if leads:
        watched.unseen.step()
    watched.gathered.post(
        monitor,
        (engine.get_data_parallel_rank(), engine.get_data_parallel_size()) if leads else None,
        step=watched.step,
        minibatch=watched.minibatch,
        minibatches=max(watched.minibatches, watched.minibatch + 1),
        policy_version=watched.step - 1,
    )


@quiet
def _count(monitor: Logs, watched: Watched, data: Any) -> None:
    """Count the gradient steps that `train_mini_batch` makes of its batch, as it does."""
    get = importlib.import_module(TENSORDICTS).get
    size, epochs = get(data, "mini_batch_size"), get(data, "epochs", 1)
    steps = get(data, "num_mini_batch", 1)
    if size is not None:
        steps = data.shape[0] // (size // watched.engine.get_data_parallel_size())
    watched.minibatches = watched.minibatch + int(steps * epochs)


@quiet
def _look_at_temperature(monitor: Logs, watched: Watched, worker: Any) -> None:
    rollout = worker.config.rollout
    mu = VLLM.get(rollout.get("logprobs_mode")) if rollout.get("name") == "vllm" else None
    watched.scaling.look(rollout.get("temperature"), mu=mu, pi_old=True, pi=True)
