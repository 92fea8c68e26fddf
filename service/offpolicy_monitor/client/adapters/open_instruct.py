"""open-instruct: what its GRPO loss is computed from, posted when the optimizer has stepped.

Stands around three functions of `open_instruct.grpo_utils`, which both of its trainers look up there at every
micro-batch (`grpo_fast.py` on DeepSpeed, `grpo.py` on OLMo-core), and around the gradient step of one trainer. Knows
their arguments and the step of the data loader; imports open-instruct only when it is called.

Shapes: B packed rows of T tokens. Arrays are [B, T-1], position t belonging to token t + 1; `position_ids` are [B, T]
and begin at 0 with each prompt of a row.
"""

import functools
import importlib
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from offpolicy_monitor.client.adapters import Logs
from offpolicy_monitor.client.adapters.shared.called import called
from offpolicy_monitor.client.adapters.shared.collector import before
from offpolicy_monitor.client.adapters.shared.gathered import Gathered
from offpolicy_monitor.client.adapters.shared.layouts import detached
from offpolicy_monitor.client.adapters.shared.place import of_process
from offpolicy_monitor.client.adapters.shared.quiet import quiet
from offpolicy_monitor.client.adapters.shared.unseen import Unseen

Actor = TypeVar("Actor")
FUNCTIONS = "open_instruct.grpo_utils"
FORWARD, CORRECTION, LOSS = "forward_for_logprobs", "compute_rho_correction", "compute_grpo_loss"

# What is read of the arguments of each, in the order of the calls of one micro-batch.
ASKED = {
    FORWARD: ("position_ids",),
    CORRECTION: ("old_logprob", "vllm_logprobs", "response_mask", "advantages", "config"),
    LOSS: ("new_logprobs",),
}

#: What open-instruct writes where a log-prob is missing or not a number.
INVALID: Final = 1.0


def watch(actor: Actor, monitor: Logs) -> Actor:
    """Post every gradient step of a policy trainer's actor to `monitor`; gives back the same actor.

    actor  `PolicyTrainerRayProcess` of grpo_fast.py, or the OLMo-core actor of grpo.py, once its model is set up

    Sent: mu; pi, with its entropy where it is recorded; pi_old where it is neither of them; advantages; the mask.
    `step` is the data loader's, which a resumed run restores; `minibatch` counts the optimizer's steps on it, over all
    epochs; `policy_version` is the step before, under whose number open-instruct hands weights to vLLM. A shard is a
    rank, under sequence parallelism too, where each rank has a part of every row.
    """
    Watch(actor, monitor).attach()
    return actor


class Watch:
    """Counts the gradient steps on each batch of one rank."""

    def __init__(self, actor: Any, monitor: Logs) -> None:
        self.monitor, self.gathered = monitor, Gathered()
        self.loader = getattr(actor, "_streaming_dataloader", None) or actor.dataloader
        self.optimizer = stepper(actor)
        self.optimize = getattr(*self.optimizer)
        self.functions = importlib.import_module(FUNCTIONS)
        self.theirs = {name: getattr(self.functions, name) for name in ASKED}
        self.given: dict[str, Any] = {}
        self.step, self.minibatch = 0, 0
        self.unseen = Unseen("open-instruct's compute_grpo_loss", "the trainer computes its loss without it")

    def attach(self) -> None:
        """Take the place of the functions in their module, and of the gradient step on this trainer."""
        for name in ASKED:
            setattr(self.functions, name, self.around(name))
        setattr(*self.optimizer, self.stepping)

    def around(self, name: str) -> Callable[..., Any]:
        """The function with its own results; once the last of the three was called, a micro-batch is known."""
        theirs = self.theirs[name]

        @functools.wraps(theirs)
        def calling(*arguments: Any, **named: Any) -> Any:
            result = theirs(*arguments, **named)
            _remember(self.monitor, self, name, arguments, named, result)
            return result

        return calling

    def stepping(self, *arguments: Any, **named: Any) -> Any:
        """The optimizer's step, after which what was gathered is posted."""
        result = self.optimize(*arguments, **named)
        self.unseen.step()
        _post(self.monitor, self)
        return result


@quiet
def _remember(monitor: Logs, watch: Watch, name: str, arguments: Any, named: Any, result: Any) -> None:
    asked = called(watch.theirs[name], arguments, named)
    watch.given |= {key: asked[key] for key in ASKED[name]}
    if name == FORWARD:
        watch.given["entropy"] = result[1]
    elif name == LOSS:
        watch.unseen.forward()
        given, watch.given = watch.given, {}
        _collect(watch, given)


def _collect(watch: Watch, given: dict[str, Any]) -> None:
    if watch.loader.training_step != watch.step:
        # What was not stepped on is OLMo-core's trial of a made-up batch, before the first one.
        watch.step, watch.minibatch, watch.gathered = int(watch.loader.training_step), 0, Gathered()
    cuts = documents(given["position_ids"])
    watch.gathered.add({name: pieces(array, cuts) for name, array in arrays(given).items()})


@quiet
def _post(monitor: Logs, watch: Watch) -> None:
    minibatch, watch.minibatch = watch.minibatch, watch.minibatch + 1
    numbers = {"minibatch": minibatch, "policy_version": before(watch.step)}
    watch.gathered.post(monitor, of_process(), step=watch.step, **numbers)


def stepper(actor: Any) -> tuple[Any, str]:
    """(object, name of its method) of the optimizer's step: DeepSpeed's engine, or the OLMo-core train module."""
    module = getattr(actor, "train_module", None)
    return (actor.model, "step") if module is None else (module, "_do_optim_step")


def arrays(given: Mapping[str, Any]) -> dict[str, Any]:
    """The contract's arrays [B, T-1], by what the three functions were given for one micro-batch.

    pi_old is left out where it is mu or pi by another name: with `use_vllm_logprobs`, and in the first epoch of a step
    that is not split. A gap of zero would be no measurement.
    """
    old, pi = given["old_logprob"], given["new_logprobs"]
    is_mu = getattr(given["config"], "use_vllm_logprobs", False)
    logprobs = {
        "sampling_logprobs": given["vllm_logprobs"],
        "old_logprobs": None if is_mu or old.data_ptr() == pi.data_ptr() else old,
        "logprobs": pi,
    }
    sent = {name: honest(detached(array)) for name, array in logprobs.items() if array is not None}
    sent |= {"advantages": detached(given["advantages"]), "mask": given["response_mask"] != 0}
    return sent if given["entropy"] is None else {**sent, "entropy": detached(given["entropy"])}


def honest(logprobs: Any) -> Any:
    """NaN in place of INVALID."""
    return logprobs.masked_fill(logprobs == INVALID, float("nan"))


def documents(position_ids: Any) -> list[tuple[int, int, int]]:
    """(row, first, end) of each prompt with its answer in arrays [B, T-1] that begin at the second token.

    One begins where a 0 is followed by a 1: the padding behind the last one is a row of zeros. Reads them from the
    device, as open-instruct's own metrics of the same micro-batch do.
    """
    first, next_ = position_ids[:, 1:-1] == 0, position_ids[:, 2:] == 1
    begun: list[list[int]] = [[0] for _ in range(len(position_ids))]
    for row, index in (first & next_).nonzero().tolist():
        begun[row].append(index)
    end = position_ids.shape[1] - 1
    spans = [zip(starts, [*starts[1:], end], strict=True) for starts in begun]
    return [(row, start, stop) for row, bounds in enumerate(spans) for start, stop in bounds if stop > start]


def pieces(array: Any, cuts: list[tuple[int, int, int]]) -> list[Any]:
    """[B, T-1] -> views of its prompts with their answers."""
    return [array[row, first:end] for row, first, end in cuts]
