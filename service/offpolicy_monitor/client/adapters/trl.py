"""TRL: what `GRPOTrainer` computes its loss from, posted at each forward of training, without a second forward.

Reads the trainer's own tensors (padded [B, T], completion tokens alone) on the way through `compute_loss`. Knows the
names of TRL's inputs and its two counters, and imports nothing of it. What other trainers make of TRL's is known by
adapters of their own, which read their inputs and count as this one does (`ms_swift`, `unsloth`).

A rollout lasts `steps_per_generation * num_iterations` forwards; `gradient_accumulation_steps` of them make one
gradient step. So `step` is the optimizer step (`state.global_step`) that the rollout was generated at, `minibatch`
counts the optimizer steps since, and the accumulated forwards of one rank are its shards: each forward has a key of
its own, `step + minibatch` is TRL's global step, and a merged minibatch is exactly one gradient step. A version counts
rollouts, before each of which TRL hands its weights to vLLM: what is trained on a rollout has its version, lag 0.
"""

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from offpolicy_monitor.client.adapters import Logs
from offpolicy_monitor.client.adapters.shared.ends import AtEnd
from offpolicy_monitor.client.adapters.shared.layouts import detached
from offpolicy_monitor.client.adapters.shared.quiet import quiet
from offpolicy_monitor.client.adapters.shared.temperature import VLLM, Scaling
from offpolicy_monitor.client.adapters.shared.unseen import Unseen
from offpolicy_monitor.vocabulary import LOGPROBS

Trainer = TypeVar("Trainer")

# The contract's name of each of TRL's inputs; TRL leaves out what it has no use for.
INPUTS = {
    "sampling_logprobs": "sampling_per_token_logps",
    "old_logprobs": "old_per_token_logps",
    "advantages": "advantages",
}

#: What scores tokens for a loss: TRL's method, and the one that axolotl has beside it for packed batches.
SCORING = ("_get_per_token_logps_and_entropies", "_get_per_token_logps_and_entropies_flattened")

ELSEWHERE = (
    "the trainer scores tokens elsewhere: Unsloth's and ms-swift's have adapters of their own (adapters.unsloth, "
    "adapters.ms_swift); a loss by Liger never has them, so set use_liger_kernel=False (use_liger_loss=False), or give "
    "its log-probs to Monitor.log yourself"
)

PROCESSED = "start the vLLM server with --logprobs-mode processed_logprobs"

#: axolotl's setting under which it generates rollouts ahead of training, and does not say by which weights.
AHEAD = "async_prefetch"


def watch(trainer: Trainer, monitor: Logs) -> Trainer:
    """Post every training forward of a `GRPOTrainer`, or of a subclass, to `monitor`; gives back the same trainer.

    Sent: pi with its entropy; pi_old where TRL keeps it; mu where vLLM samples; advantages; the completion's mask
    without tool tokens; the policy version that generated. Evaluation posts nothing, and neither does a forward of
    which only one of the log-probs exists. Where `train` comes to its end, the run has ended.
    """
    Watch(trainer, monitor).attach()
    return trainer


@dataclass
class Counts:
    """Where training is: optimizer steps done, the one that the rollout was generated at, the forward since."""

    done: int = -1
    rollout: int = -1
    forward: int = 0

    def advance(self, done: int, new_rollout: bool) -> None:
        """Count one more forward."""
        self.forward = self.forward + 1 if done == self.done else 0
        self.done = done
        if new_rollout or self.rollout < 0:
            self.rollout = done


class Events(AtEnd):
    """Listens to a trainer, whose steps end whether or not its loss is computed where it is watched."""

    def __init__(self, monitor: Logs, unseen: Unseen) -> None:
        super().__init__(monitor)
        self.unseen = unseen

    def on_step_end(self, *arguments: Any, **named: Any) -> None:
        """An optimizer step has passed."""
        self.unseen.step()


class Watch:
    """Stands around the methods of one trainer that score tokens, and the one that computes the loss of a forward.

    A trainer of another framework has its own `read`, and what it holds differently: `together`.
    """

    def __init__(self, trainer: Any, monitor: Logs) -> None:
        self.trainer, self.monitor, self.counts = trainer, monitor, Counts()
        self.losses, self.scored = False, None
        self.unseen = Unseen(self.hook(), ELSEWHERE, "no logprobs (those of the current policy) are posted")

    def hook(self) -> str:
        """What is watched, for the log."""
        return "TRL's _get_per_token_logps_and_entropies"

    def attach(self) -> None:
        """Take the place of the methods on this trainer, not on its class, and listen to its end."""
        for name in SCORING:
            if hasattr(self.trainer, name):
                setattr(self.trainer, name, self.scoring(getattr(self.trainer, name)))
        self.trainer.compute_loss = self.losing(self.trainer.compute_loss)
        self.trainer.add_callback(Events(self.monitor, self.unseen))
        client = getattr(getattr(self.trainer, "vllm_generation", None), "vllm_client", None)
        if client is not None:
            ask(client, "TRL's GRPOTrainer", self.trainer.args.temperature)

    def begin(self) -> None:
        """A loss begins."""
        self.losses, self.scored = True, None

    def scoring(self, score: Callable[..., Any]) -> Callable[..., Any]:
        """TRL's own result (log-probs [B, T], entropies [B, T] or None, ...), kept where a loss asks for it."""

        def scoring(*arguments: Any, **named: Any) -> Any:
            scored = score(*arguments, **named)
            if self.losses and scored[0] is not None:
                self.see(scored)
            return scored

        return scoring

    def see(self, scored: Any) -> None:
        """A loss has scored its tokens. What it scores after them, a reference, is not the policy."""
        if self.scored is None:
            self.scored = scored

    def losing(self, lose: Callable[..., Any]) -> Callable[..., Any]:
        """TRL's own loss; on the way out, the batch that it was computed from is posted."""

        def losing(model: Any, inputs: Any, *arguments: Any, **named: Any) -> Any:
            self.begin()
            try:
                loss = lose(model, inputs, *arguments, **named)
            finally:
                self.losses, scored, self.scored = False, self.scored, None
            if model.training:
                if scored is not None:
                    self.unseen.forward()
                post(self.monitor, self, inputs, scored)
            return loss

        return losing

    def together(self) -> int:
        """How many processes, one after the other, hold the same tokens: the first of them posts."""
        return 1

    def versions(self, synced: int, rows: int) -> dict[str, Any]:
        """The version that sampled, for each row: that of the rollout; none where rollouts are generated ahead."""
        if getattr(self.trainer.args, AHEAD, False):
            return {}
        return {"policy_versions": np.full(rows, synced, np.int64)}

    def read(self, inputs: Any, scored: Any) -> dict[str, Any]:
        """The contract's arrays, rows [B, T] or a list of rows."""
        return arrays(inputs, scored or ())


@quiet
def post(monitor: Logs, watch: Watch, inputs: Any, scored: Any) -> None:
    """Post one forward, counted in any case."""
    trainer, together, counts = watch.trainer, watch.together(), watch.counts
    rollout_forwards = trainer.args.steps_per_generation * trainer.num_iterations * together
    counts.advance(trainer.state.global_step, trainer._step % rollout_forwards == 0)
    process, ranks = trainer.accelerator.process_index, trainer.accelerator.num_processes // together
    sent = watch.read(inputs, scored)
    if process % together or sum(name in sent for name in LOGPROBS) < 2:
        return
    accumulated = trainer.args.gradient_accumulation_steps
    synced = version(counts.rollout * accumulated, max(rollout_forwards, accumulated))
    monitor.log(
        step=counts.rollout,
        minibatch=counts.done - counts.rollout,
        minibatches=max(1, rollout_forwards // accumulated),
        shard=process // together * accumulated + counts.forward,
        shards=ranks * accumulated,
        policy_version=synced,
        **watch.versions(synced, len(sent["mask"])),
        **sent,
    )


def version(forwards: int, between: int) -> int:
    """How often weights have been synced where that is done every so many forwards, and a rollout began by this one.

    Rounded up: a rollout that began within a gradient step has that step's number of forwards.
    """
    return -(-forwards // between)


def ask(client: Any, hook: str, temperature: object) -> None:
    """Warn where the vLLM server's log-probs are before the temperature; pi and pi_old of TRL's trainers are after it.

    Asked over HTTP, in a thread of its own: training does not wait, and a server that does not answer is left alone.
    """

    def asked() -> None:
        with suppress(Exception):
            mode = client.get_server_info()["model_config"]["logprobs_mode"]
            Scaling(hook, PROCESSED).look(temperature, mu=VLLM.get(mode), pi=True)

    threading.Thread(target=asked, name="offpolicy-monitor-scaling", daemon=True).start()


def arrays(inputs: Mapping[str, Any], scored: Any) -> dict[str, Any]:
    """The contract's arrays out of the inputs of a loss and of what its forward gave.

    [B, T] float32, the mask bool: completion tokens, without those that a tool wrote; advantages [B] or [B, T].
    """
    sent = {name: detached(inputs[of]) for name, of in INPUTS.items() if inputs.get(of) is not None}
    sent |= {name: detached(values) for name, values in zip(("logprobs", "entropy"), scored, strict=False)}
    mask, tool_mask = inputs["completion_mask"], inputs.get("tool_mask")
    sent["mask"] = (mask if tool_mask is None else mask * tool_mask) != 0
    return {name: values for name, values in sent.items() if values is not None}
