"""slime's hooks, as slime and its fork miles have them alike: functions that a path in the options names.

`loss` (every micro-batch) is the framework's own policy loss and posts all three log-probs, `tis` posts mu and pi_old
where the loss must stay `policy_loss`, `before_step` tells both which gradient step it is. All have lists of 1-D
response rows, S sequences of n tokens. Knows the options and the batch that both have; what differs it is given.
"""

import functools
import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from offpolicy_monitor.client.adapters import Logs
from offpolicy_monitor.client.adapters.shared.by_path import ByPath, Counting
from offpolicy_monitor.client.adapters.shared.calls import in_backward, results_of
from offpolicy_monitor.client.adapters.shared.layouts import detached
from offpolicy_monitor.client.adapters.shared.place import Place
from offpolicy_monitor.client.adapters.shared.quiet import quiet
from offpolicy_monitor.client.adapters.shared.temperature import Scaling
from offpolicy_monitor.client.adapters.shared.unseen import Unseen

#: The contract's name of each list of a batch. Under context parallelism a rank has a part of each row.
ROWS: Final = {"sampling_logprobs": "rollout_log_probs", "old_logprobs": "log_probs", "advantages": "advantages"}
#: Of the module of losses: what computes pi, and the entropy with it.
COMPUTES: Final = "get_log_probs_and_entropy"
#: Set where the engines run, which are given the environment of the job as these functions are.
BEFORE_TEMPERATURE: Final = "SGLANG_RETURN_ORIGINAL_LOGPROB"

Gather = Callable[[Any, int], Any]


class Hooks:
    """The hooks of one framework in one process.

    name    of the framework, and of the module whose functions they are
    losses  paths of which one is the module that has `policy_loss_function` and `vanilla_tis_function`
    place   which shard this process posts
    gather  of (args, batch): None, or what puts together the parts of a row, by (part, index of the sequence)
    """

    def __init__(
        self,
        name: str,
        losses: Sequence[str],
        place: Place,
        gather: Callable[[Any, Mapping[str, Any]], Gather | None],
    ) -> None:
        self.name, self.losses, self.gather = name, losses, gather
        path = f"offpolicy_monitor.client.adapters.{name}.before_step"
        self.here = ByPath(place, self._unseen, f"--custom-megatron-before-train-step-hook-path {path}")
        self.scaling = Scaling(f"{name}'s hooks", f"leave {BEFORE_TEMPERATURE} out of the job's environment")

    def use(self, monitor: Logs) -> None:
        """Post to this monitor from now on, instead of one made from the environment."""
        self.here.use(monitor)

    def before_step(self, args: Any, rollout_id: int, step_id: int, model: Any, *others: Any) -> None:
        """For `--custom-megatron-before-train-step-hook-path`: gradient step `step_id` of rollout `rollout_id` begins.

        A step that is made once more is posted as it was made last.
        """
        _begin(self.here.monitor(), self.here, args, rollout_id, step_id, model)

    def loss(self, args: Any, batch: Mapping[str, Any], logits: Any, sum_of_sample_mean: Any) -> Any:
        """For `--loss-type custom_loss --custom-loss-function-path`: the framework's policy loss, whatever it gives.

        Posts mu, pi_old (where it was recomputed), pi, its entropy and advantages, one shard per gradient step.
        """
        losses = _imported(self.losses)
        if in_backward():
            return losses.policy_loss_function(args, batch, logits, sum_of_sample_mean)
        with results_of(losses, COMPUTES) as computed:
            result = losses.policy_loss_function(args, batch, logits, sum_of_sample_mean)
        _collect_loss(self.here.monitor(), self, args, batch, computed)
        return result

    def tis(self, args: Any, *, pg_loss: Any, loss_masks: Any, **named: Any) -> tuple[Any, Any, dict[str, Any]]:
        """For `--custom-tis-function-path`: post mu and pi_old of every micro-batch, one shard per gradient step.

        Gives what the framework's own correction gives under `--use-tis`, and the loss unchanged without it.
        """
        if not in_backward():
            _collect_correction(self.here.monitor(), self, args, {"loss_masks": loss_masks, **named})
        if not args.use_tis:
            return pg_loss, loss_masks, {}
        corrected = _imported(self.losses).vanilla_tis_function
        result: tuple[Any, Any, dict[str, Any]] = corrected(args, pg_loss=pg_loss, loss_masks=loss_masks, **named)
        return result

    def whole(self, args: Any, rows: Mapping[str, Any], batch: Mapping[str, Any]) -> dict[str, list[Any]]:
        """S rows [n] by name, put together where context parallelism has cut them; without those that are empty.

        All ranks of a context-parallel group enter the framework's collective. Without a graph: a loss that is
        recomputed for its gradient must save the same tensors without this.
        """
        there = {name: [detached(row) for row in values] for name, values in rows.items() if values}
        gather = self.gather(args, batch)
        if gather is None:
            return there
        with importlib.import_module("torch").no_grad():
            return {name: [gather(row, index) for index, row in enumerate(values)] for name, values in there.items()}

    def look(self, args: Any) -> None:
        """The trainer divides its logits by the temperature; SGLang's log-probs are after it, unless told else."""
        before = os.environ.get(BEFORE_TEMPERATURE, "").lower() in ("1", "true")
        self.scaling.look(getattr(args, "rollout_temperature", 1.0), mu=not before, pi_old=True, pi=True)

    def _unseen(self) -> Unseen:
        advice = "--custom-loss-function-path needs --loss-type custom_loss, --custom-tis-function-path "
        return Unseen(f"{self.name}'s loss or tis", f"{advice}--get-mismatch-metrics or --use-tis")


def _imported(paths: Sequence[str]) -> Any:
    """The first module that is there; raises what the import of the last one raises."""
    for path in paths[:-1]:
        try:
            return importlib.import_module(path)
        except ModuleNotFoundError as error:
            if not path.startswith(str(error.name)):
                raise
    return importlib.import_module(paths[-1])


@quiet
def _begin(monitor: Logs, here: ByPath, args: Any, rollout_id: int, step_id: int, model: Any) -> None:
    if not _is_critic(model):
        here.begin(counting(args), rollout_id, step_id)


def _is_critic(model: Any) -> bool:
    """Whether it is the critic's training, whose process is told of its own gradient steps."""
    return bool(model) and getattr(model[0], "role", "actor") == "critic"


@quiet
def _collect_loss(monitor: Logs, hooks: Hooks, args: Any, batch: Mapping[str, Any], computed: list[Any]) -> None:
    result = computed[0][1] if isinstance(computed[0], tuple) else computed[0]
    rows = {name: batch.get(of) for name, of in ROWS.items()}
    # Under top-p pi is of the tokens that the engine kept, the entropy of all: those two cannot be compared.
    entropy = result.get("entropy") if getattr(args, "rollout_top_p", 1.0) == 1.0 else None
    _add(hooks, args, {**rows, "logprobs": result["log_probs"], "entropy": entropy}, batch)


@quiet
def _collect_correction(monitor: Logs, hooks: Hooks, args: Any, batch: Mapping[str, Any]) -> None:
    _add(
        hooks,
        args,
        {"sampling_logprobs": batch["rollout_log_probs"], "old_logprobs": batch["train_log_probs"]},
        batch,
    )


def _add(hooks: Hooks, args: Any, rows: Mapping[str, Any], batch: Mapping[str, Any]) -> None:
    hooks.look(args)
    whole = hooks.whole(args, rows, batch)
    hooks.here.add(counting(args), {"mask": list(batch["loss_masks"]), **whole})


def counting(args: Any) -> Counting:
    """What the options say. A process whose run goes on from a checkpoint has no `start_rollout_id`."""
    interval = getattr(args, "update_weights_interval", None) or 1
    first = getattr(args, "start_rollout_id", None)
    return Counting(first, steps_of(args), functools.partial(version, interval=interval))


def steps_of(args: Any) -> int:
    """Gradient steps per rollout: as given, or its samples over those of a gradient step."""
    given, batch = getattr(args, "num_steps_per_rollout", None), getattr(args, "global_batch_size", None)
    if given or not batch or getattr(args, "use_dynamic_global_batch_size", False):
        return int(given or 1)
    return max(1, int(args.rollout_batch_size * args.n_samples_per_prompt // batch))


def version(rollout_id: int, interval: int) -> int:
    """How often weights were synced before a rollout was trained on, but for the first time: after every so many."""
    return rollout_id // interval
