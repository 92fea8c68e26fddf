"""ms-swift: what its `GRPOTrainer` computes its loss from, posted at each forward of training.

It is a subclass of TRL's that keeps TRL's counters and replaces the rest: a batch is model inputs and a `GRPOBatch`, in
which pi_old is always computed, and mu is there where vLLM samples. Rounds of a conversation, or a batch that is larger
than the configured one, are computed in parts, each of which is a call of `_compute_loss_and_metrics`; a rank that has
fewer parts than another computes its last part again, times 0, which is not counted again here. Knows ms-swift's names,
counts as the adapter for TRL does, and imports nothing of either framework.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from offpolicy_monitor.client.adapters import Logs, trl
from offpolicy_monitor.client.adapters.shared.ends import Events
from offpolicy_monitor.client.adapters.shared.layouts import all_rows
from offpolicy_monitor.client.adapters.shared.made import made

Trainer = TypeVar("Trainer")

# The contract's name of each field of a GRPOBatch.
FIELDS = {
    "sampling_logprobs": "rollout_per_token_logps",
    "old_logprobs": "old_per_token_logps",
    "advantages": "advantages",
    "mask": "completion_mask",
}


def watch(trainer: Trainer, monitor: Logs) -> Trainer:
    """Post every training forward of ms-swift's `GRPOTrainer` to `monitor`; gives back the same trainer.

    Sent: all three log-probs, mu where vLLM samples; advantages per token; entropy where the trainer computes it
    (`log_entropy`, `top_entropy_quantile`); the completion's mask. Under sequence parallelism the first process of
    each group posts. Where `train` comes to its end, the run has ended.
    """
    Watch(trainer, monitor).attach()
    return trainer


def callback(make: Callable[[], Logs]) -> Callable[[Any, Any], Events]:
    """A row for ms-swift's `callbacks_map`, of a plugin's file: training begins with `watch(trainer, make())`.

    `make` is called in each process when training begins; where it raises, nothing is posted, and the log says so.
    """

    class Begins(Events):
        def __init__(self, args: Any, trainer: Any) -> None:
            self.trainer = trainer

        def on_train_begin(self, *arguments: Any, **named: Any) -> None:
            """The trainer is whole."""
            watch(self.trainer, made(make))

    return Begins


class Watch(trl.Watch):
    """Reads each part of a forward, with what was scored for it."""

    def __init__(self, trainer: Any, monitor: Logs) -> None:
        super().__init__(trainer, monitor)
        self.parts: list[tuple[Any, Any]] = []
        self.first: int | None = None

    def hook(self) -> str:
        """What is watched, for the log."""
        return "ms-swift's _compute_loss_and_metrics"

    def attach(self) -> None:
        """Stand around the parts of a forward too."""
        super().attach()
        self.trainer._compute_loss_and_metrics = self.computing(self.trainer._compute_loss_and_metrics)

    def begin(self) -> None:
        """A loss begins, of no part yet."""
        super().begin()
        self.parts = []

    def computing(self, compute: Callable[..., Any]) -> Callable[..., Any]:
        """ms-swift's own loss and metrics of one part."""

        def computing(model: Any, model_inputs: Any, grpo_batch: Any, *arguments: Any, **named: Any) -> Any:
            if all(batch is not grpo_batch for batch, _ in self.parts):
                self.parts.append((grpo_batch, None))
            return compute(model, model_inputs, grpo_batch, *arguments, **named)

        return computing

    def see(self, scored: Any) -> None:
        """The part that was begun last has scored its tokens."""
        super().see(scored)
        if self.parts and self.parts[-1][1] is None:
            self.parts[-1] = (self.parts[-1][0], scored)

    def together(self) -> int:
        """The processes of a group of sequence parallelism gather each other's samples."""
        return int(self.trainer.template.sequence_parallel_size)

    def versions(self, synced: int, rows: int) -> dict[str, Any]:
        """The version that sampled: with `async_generate` a round before, but for the first round."""
        self.first = synced if self.first is None else self.first
        sampled = max(synced - 1, self.first) if getattr(self.trainer.args, "async_generate", False) else synced
        return {"policy_versions": np.full(rows, sampled, np.int64)}

    def read(self, inputs: Any, scored: Any) -> dict[str, Any]:
        """Rows of all parts; where a loss by Liger has none, of the batch as it came, without pi."""
        parts, self.parts = self.parts, []
        if not parts:
            parts = [((inputs[0] if isinstance(inputs, list) else inputs)["grpo_batch"], None)]
        sent: dict[str, Any] = {}
        for batch, of in parts:
            for name, rows in part(batch, of).items():
                sent.setdefault(name, []).extend(rows)
        return sent


def part(batch: Any, scored: Any) -> dict[str, list[Any]]:
    """The contract's arrays of one part, as rows [T]: what is no completion is masked, and padded left."""
    arrays = {name: getattr(batch, field) for name, field in FIELDS.items()}
    arrays |= dict(zip(("logprobs", "entropy"), scored or (), strict=False))
    return all_rows(arrays)
