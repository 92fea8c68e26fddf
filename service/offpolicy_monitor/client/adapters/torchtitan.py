"""torchtitan's RL experiment: what the policy trainer's loss is computed from, posted when its optimizers have stepped.

Stands around the loss of one `PolicyTrainer`, around the function by which the loss scores its tokens, and around its
optimizers' step; hears of positions by a hook of torch before the model's forward. Knows their arguments; imports
nothing of torchtitan.

Shapes: [T] packed tokens of a microbatch, or [B, T] rows; log-probs, mask and advantages lie at the position that
predicts a token; `positions` begin at 0 with each sample.
"""

import functools
import importlib
import itertools
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from offpolicy_monitor.client.adapters import Logs
from offpolicy_monitor.client.adapters.shared.gathered import Gathered
from offpolicy_monitor.client.adapters.shared.layouts import detached, split
from offpolicy_monitor.client.adapters.shared.quiet import quiet
from offpolicy_monitor.client.adapters.shared.unseen import Unseen

Trainer = TypeVar("Trainer")
SCORES = "compute_logprobs"

# The contract's name of each of the loss's inputs.
INPUTS = {"sampling_logprobs": "generator_logprobs", "advantages": "advantages", "mask": "loss_mask"}


def watch(trainer: Trainer, monitor: Logs) -> Trainer:
    """Post every gradient step of a `PolicyTrainer` to `monitor`; gives back the same trainer.

    Sent: mu; pi with its entropy; advantages; the mask. `step` is the controller's, the trainer's version plus one, and
    `policy_version` the trainer's version: how many steps it has done, after each of which generators pull its
    weights. A shard is a data-parallel rank, whose first tensor-parallel rank posts.
    """
    Watch(trainer, monitor).attach()
    return trainer


class Watch:
    """Gathers the microbatches of a gradient step of one trainer on one rank."""

    def __init__(self, trainer: Any, monitor: Logs) -> None:
        self.trainer, self.monitor = trainer, monitor
        self.loss, self.optimize = trainer.loss_fn, trainer.optimizers.step
        # A loss that goes over a microbatch in chunks has the one that scores within it.
        self.names = type(getattr(self.loss, "loss_fn", self.loss)).__call__.__globals__
        self.positions: Any = None
        self.scored: list[Any] | None = None
        self.microbatches: list[dict[str, Any]] = []
        self.unseen = Unseen("torchtitan's loss", f"it scores its tokens by another function than {SCORES}")

    def attach(self) -> None:
        """Take the place of the loss, of its function and of the optimizers' step, and listen to the model."""
        self.trainer.loss_fn, self.trainer.optimizers.step = self.losing, self.stepping
        if SCORES in self.names:
            self.names[SCORES] = self.around(self.names[SCORES])
        self.trainer.model.register_forward_pre_hook(self.hearing, with_kwargs=True)

    def hearing(self, model: Any, arguments: Any, named: Mapping[str, Any]) -> None:
        """The model is asked for these positions."""
        self.positions = named.get("positions")

    def around(self, scores: Callable[..., Any]) -> Callable[..., Any]:
        """The function's own log-probs, or (log-probs, entropy), which are remembered while the loss runs."""

        @functools.wraps(scores)
        def scoring(*arguments: Any, **named: Any) -> Any:
            scored = scores(*arguments, **named)
            if self.scored is not None:
                self.scored.append(tuple(map(detached, scored if isinstance(scored, tuple) else (scored,))))
            return scored

        return scoring

    def losing(self, *arguments: Any, **named: Any) -> Any:
        """The loss's own result for one microbatch."""
        self.scored = []
        result = self.loss(*arguments, **named)
        scored, self.scored = self.scored, None
        if scored:
            self.unseen.forward()
            _collect(self.monitor, self, scored, named)
        return result

    def stepping(self, *arguments: Any, **named: Any) -> Any:
        """The optimizers' step, which ends a gradient step."""
        result = self.optimize(*arguments, **named)
        self.unseen.step()
        microbatches, self.microbatches = self.microbatches, []
        _post(self.monitor, self.trainer, microbatches)
        return result


@quiet
def _collect(monitor: Logs, watch: Watch, scored: list[Any], inputs: Mapping[str, Any]) -> None:
    whole = importlib.import_module("torch").cat
    sent = {name: inputs[of] for name, of in INPUTS.items()} | {"positions": watch.positions}
    # Chunks are of neighbouring tokens, of each row where there are rows.
    parts = zip(("logprobs", "entropy"), zip(*scored, strict=True), strict=False)
    sent |= {name: whole(chunks, -1) for name, chunks in parts}
    watch.microbatches.append({name: detached(array).reshape(-1) for name, array in sent.items()})


@quiet
def _post(monitor: Logs, trainer: Any, microbatches: list[dict[str, Any]]) -> None:
    where, version, gathered = place(trainer), int(trainer.policy_version), Gathered()
    if where is None:
        return
    for arrays in microbatches:
        # Read from the device here, where the metrics of the microbatches have been waited for.
        sizes = samples(arrays.pop("positions"))
        gathered.add({name: split(array, sizes) for name, array in arrays.items()})
    gathered.post(monitor, where, step=version + 1, policy_version=version)


def samples(positions: Any) -> list[int]:
    """Lengths of the samples of packed positions [T], each of which begins at 0."""
    begun = [*(positions == 0).nonzero().reshape(-1).tolist(), len(positions)]
    return [end - start for start, end in itertools.pairwise(begun)]


def place(trainer: Any) -> tuple[int, int] | None:
    """(data-parallel rank, their number), or None where another tensor-parallel rank has the same tokens."""
    mesh = trainer.parallel_dims.get_optional_mesh("tp")
    return None if mesh is not None and mesh.get_local_rank() else (trainer.dp_rank, trainer.dp_size)
