"""Unsloth: what its compiled `GRPOTrainer` computes its loss from, posted at each forward of training.

Unsloth writes a trainer of its own out of TRL's, whose loss scores tokens inside of itself, in rows that it packs to
the left: pi, pi_old, mu and the mask meet, aligned, in the arguments of one autograd function (`UnslothEfficientGRPO`),
which the generated module calls by its global name. A stand-in at that name hands the arguments on unchanged, and the
watched trainer reads them. Where it is not there, or not called, mu and pi_old are read from the inputs as TRL has
them, and the log says that pi is missing. Counts as the adapter for TRL does. Knows Unsloth's names, and imports
nothing of it.
"""

from collections.abc import Mapping
from typing import Any, Final, TypeVar

from offpolicy_monitor.client.adapters import Logs, trl
from offpolicy_monitor.client.adapters.shared.in_place import InPlaceOf
from offpolicy_monitor.client.adapters.shared.layouts import detached
from offpolicy_monitor.client.counters import LOGGER

Trainer = TypeVar("Trainer")

#: The autograd function, and its first arguments by the contract's names; the others are not sent.
FUNCTION: Final = "UnslothEfficientGRPO"
ARGUMENTS: Final = ("logprobs", "old_logprobs", "", "sampling_logprobs", "", "", "mask", "advantages")

#: Of the inputs: Unsloth takes the engine's log-probs in the place of pi_old (UNSLOTH_GRPO_ROLLOUT_LOGPROBS_AS_OLD=1).
AS_OLD: Final = "unsloth_rollout_logps_as_old"


def watch(trainer: Trainer, monitor: Logs) -> Trainer:
    """Post every training forward of Unsloth's `GRPOTrainer` to `monitor`; gives back the same trainer.

    Sent: pi; pi_old where Unsloth computes it; mu where vLLM samples; advantages; the mask without tool tokens; the
    policy version that generated. Where `train` comes to its end, the run has ended.
    """
    Watch(trainer, monitor).attach()
    return trainer


class Watch(trl.Watch):
    """Reads the arguments of the compiled loss."""

    def hook(self) -> str:
        """What is watched, for the log."""
        return f"{FUNCTION} of Unsloth's trainer"

    def attach(self) -> None:
        """Stand in for the function where the generated module looks it up, and around the loss of this trainer."""
        names = getattr(self.trainer.compute_loss, "__globals__", {})
        if FUNCTION in names:
            names[FUNCTION] = StandIn(names[FUNCTION], self)
        else:
            LOGGER.warning("no %s beside this trainer's loss: is it Unsloth's? No logprobs are posted", FUNCTION)
        super().attach()

    def read(self, inputs: Mapping[str, Any], scored: Any) -> dict[str, Any]:
        """The contract's arrays, [B, W] of packed rows, or as TRL has them, [B, T]."""
        if scored is None:
            return unpacked(trl.arrays(inputs, ()), inputs)
        sent = {name: detached(value) for name, value in zip(ARGUMENTS, scored, strict=False) if name}
        if inputs.get(AS_OLD) is not None:
            sent |= {"sampling_logprobs": sent["old_logprobs"], "old_logprobs": None}
        sent["mask"] = sent["mask"] != 0
        return {name: value for name, value in sent.items() if value is not None}


class StandIn(InPlaceOf):
    """The function's own `apply`, whose arguments a trainer sees while it computes a loss."""

    def __init__(self, function: Any, watch: Watch) -> None:
        super().__init__(function)
        self.watch = watch

    def apply(self, *arguments: Any, **named: Any) -> Any:
        """The function's own result."""
        if self.watch.losses:
            self.watch.see(arguments)
        return self.of.apply(*arguments, **named)


def unpacked(sent: dict[str, Any], inputs: Mapping[str, Any]) -> dict[str, Any]:
    """pi_old from rows that were packed to the left, [B, T + P], to where TRL has its tokens, [B, T].

    P is the most padding that a prompt has on its left; of a row with less, the completion begins that much later.
    """
    old, mask = sent.get("old_logprobs"), sent["mask"]
    if old is None or old.shape == mask.shape:
        return sent
    width, most = mask.shape[1], old.shape[1] - mask.shape[1]
    begins = most - (inputs["prompt_mask"] == 0).sum(1)
    where = begins[:, None] + (mask.cumsum(1) * 0 + 1).cumsum(1) - 1
    return sent | {"old_logprobs": old.gather(1, where.clamp(max=width + most - 1))}
