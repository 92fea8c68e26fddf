"""TRL's experimental `AsyncGRPOTrainer`: mu and pi of each micro-batch, posted with the versions that sampled.

A trainer of its own, which shares nothing with `GRPOTrainer`: rollouts come from a queue while weights move on, and the
micro-batch of each rank is one packed row. Its `old_log_probs` are what vLLM returned, so mu; there is no pi_old. pi is
in what the model returns for the loss: a forward hook of torch reads it there, without a second forward.

`step` is the optimizer step (`state.global_step`); the micro-batches that a rank accumulates are its shards of it. A
version counts weight syncs (`model_version`), of which the main process alone knows, as it does of the versions that
sampled: `Versions` lets both ride along with the batch that the main process hands to all. Knows this trainer's names,
and imports nothing of it.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

import numpy as np

from offpolicy_monitor.client.adapters import Logs
from offpolicy_monitor.client.adapters.shared.in_place import InPlaceOf
from offpolicy_monitor.client.adapters.shared.layouts import detached, split
from offpolicy_monitor.client.adapters.shared.quiet import quiet
from offpolicy_monitor.client.adapters.shared.unseen import Unseen
from offpolicy_monitor.client.adapters.trl import Counts, Events, ask

Trainer = TypeVar("Trainer")

ELSEWHERE = "the trainer scores tokens elsewhere; give its log-probs to Monitor.log yourself"

#: Groups of samples whose version is remembered between the queue and the batch: far more than are ever on their way.
GROUPS: Final = 100_000


def watch(trainer: Trainer, monitor: Logs) -> Trainer:
    """Post every micro-batch of an `AsyncGRPOTrainer` to `monitor`; gives back the same trainer.

    Sent: mu; pi with its entropy; advantages; versions. A sequence is what one sample is trained on, without the tokens
    that tools wrote. Where `train` comes to its end, the run has ended.
    """
    Watch(trainer, monitor).attach()
    return trainer


class Watch:
    """Stands around the loss of one trainer, and listens to the model while it is computed."""

    def __init__(self, trainer: Any, monitor: Logs) -> None:
        self.trainer, self.monitor, self.counts = trainer, monitor, Counts()
        self.lose, self.versions = trainer.compute_loss, Versions(trainer, monitor)
        self.unseen = Unseen("AsyncGRPOTrainer's compute_loss", ELSEWHERE)

    def attach(self) -> None:
        """Take the place of the loss on this trainer, not on its class, and listen to its end."""
        self.trainer.compute_loss = self.losing
        self.versions.attach()
        self.trainer.add_callback(Events(self.monitor, self.unseen))

    def losing(self, model: Any, inputs: Mapping[str, Any], *arguments: Any, **named: Any) -> Any:
        """TRL's own loss; on the way out, the micro-batch that it was computed from is posted."""
        outputs: list[Any] = []
        hook = model.register_forward_hook(lambda _model, _inputs, output: outputs.append(output))
        try:
            loss = self.lose(model, inputs, *arguments, **named)
        finally:
            hook.remove()
        if model.training and outputs:
            if self.counts.done < 0 and self.trainer.accelerator.is_main_process:
                ask(self.trainer.vllm_client, "AsyncGRPOTrainer", self.trainer.args.temperature)
            self.unseen.forward()
            post(self.monitor, self, inputs, outputs[0])
        return loss


@quiet
def post(monitor: Logs, watch: Watch, inputs: Mapping[str, Any], output: Any) -> None:
    """Post one micro-batch, counted in any case."""
    trainer, counts = watch.trainer, watch.counts
    counts.advance(trainer.state.global_step, new_rollout=True)
    accumulated = trainer.args.gradient_accumulation_steps
    monitor.log(
        step=counts.done,
        shard=trainer.accelerator.process_index * accumulated + counts.forward,
        shards=trainer.accelerator.num_processes * accumulated,
        **rows(inputs, output),
        **watch.versions.of(inputs),
    )


def rows(inputs: Mapping[str, Any], output: Any) -> dict[str, Any]:
    """The contract's arrays of one rank's row, one row [n] for each sample.

    `inputs` are [1, M], of which `token_index` is -1 where it is padding, and else the packed position whose prediction
    is the token; `output.log_probs` and `output.entropy` are of the packed positions.
    """
    real = inputs["token_index"] >= 0
    where = inputs["token_index"][real]
    packed = {"sampling_logprobs": inputs["old_log_probs"][real], "advantages": inputs["advantages"][real]}
    packed |= {"logprobs": output.log_probs.flatten()[where], "entropy": output.entropy.flatten()[where]}
    samples = inputs["segment_id"][real].cpu().numpy()
    sizes = np.diff(np.flatnonzero(np.diff(samples, prepend=-1, append=-1))).tolist()
    return {name: split(detached(values), sizes) for name, values in packed.items()}


class Versions:
    """The version that sampled each sample, and the one that is live, brought to every process within its batch.

    The queue gives samples with their version, and the trainer drops it; all samples of a group have the same. So the
    main process notes it by group as samples leave the queue, and the collator's batch gets two tensors more, of a row
    for each process, which the trainer's own loss does not look at.
    """

    def __init__(self, trainer: Any, monitor: Logs) -> None:
        self.trainer, self.monitor = trainer, monitor
        self.groups: OrderedDict[Any, int] = OrderedDict()
        self.offset: int | None = None

    def attach(self) -> None:
        """Stand at the queue and at the collator of the main process."""
        queue, load = self.trainer.rollout_queue, self.trainer.get_train_dataloader
        if queue is not None:
            self.trainer.rollout_queue = Noting(queue, self)

        def loading(*arguments: Any, **named: Any) -> Any:
            loader = load(*arguments, **named)
            collate_along(self.monitor, self, loader)
            return loader

        self.trainer.get_train_dataloader = loading

    def of(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """`policy_version` of the step, and `policy_versions` [S] int64 of the samples with a token in it.

        The live version goes up every `weight_sync_steps` steps, and a batch is collated ahead of its step: so the
        first one says what steps have to be added to.
        """
        if "policy_versions" not in inputs:
            return {}
        syncs = self.trainer.state.global_step // self.trainer.args.weight_sync_steps
        if self.offset is None:
            self.offset = int(inputs["policy_version"][0]) - syncs
        samples = np.unique(inputs["segment_id"][inputs["token_index"] >= 0].cpu().numpy())
        sampled = inputs["policy_versions"][0].cpu().numpy()[samples]
        return {"policy_version": self.offset + syncs} | ({"policy_versions": sampled} if sampled.min() >= 0 else {})


class Noting(InPlaceOf):
    """The trainer's queue, with an eye on what leaves it."""

    def __init__(self, queue: Any, versions: Versions) -> None:
        super().__init__(queue)
        self.versions = versions

    def get(self, *arguments: Any, **named: Any) -> Any:
        """The queue's own item."""
        item = self.of.get(*arguments, **named)
        note(self.versions.monitor, self.versions.groups, item)
        return item


@quiet
def note(monitor: Logs, groups: OrderedDict[Any, int], sample: Any) -> None:
    """Remember which version sampled a group."""
    groups[sample.group_id] = sample.model_version
    if len(groups) > GROUPS:
        groups.popitem(last=False)


@quiet
def collate_along(monitor: Logs, versions: Versions, loader: Any) -> None:
    """Let the versions ride along with each batch of the loader that collates."""
    collating = getattr(loader, "base_dataloader", loader)
    collate: Callable[[Sequence[Any]], dict[str, Any]] = collating.collate_fn

    def collated(examples: Sequence[Any]) -> dict[str, Any]:
        batch = collate(examples)
        ride(monitor, versions, examples, batch)
        return batch

    collating.collate_fn = collated


@quiet
def ride(monitor: Logs, versions: Versions, examples: Sequence[Any], batch: dict[str, Any]) -> None:
    """Add `policy_version` [P] and `policy_versions` [P, S] to a batch of P processes; -1 where none is known."""
    sampled = [[versions.groups.get(sample["group_id"], -1) for sample in row.samples] for row in examples[0]]
    most, ids = max(map(len, sampled)), batch["segment_id"]
    batch["policy_versions"] = ids.new_tensor([row + [-1] * (most - len(row)) for row in sampled])
    batch["policy_version"] = ids.new_full((len(sampled),), versions.trainer.model_version)
