"""tinker-cookbook: the data of each training step with the log-probs that Tinker's forward gave for it.

Stands around two functions of a module that trains: the one that ends a step, with its number, data and log-probs, and
the one that splits the data into optimizer steps. Knows their arguments and the names of a datum's `loss_fn_inputs`
([n]: of n targets, already shifted); imports tinker-cookbook only when it is called.
"""

import functools
import importlib
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

from offpolicy_monitor.client.adapters import Logs
from offpolicy_monitor.client.adapters.shared.called import called
from offpolicy_monitor.client.adapters.shared.ends import before_end
from offpolicy_monitor.client.adapters.shared.quiet import quiet
from offpolicy_monitor.client.adapters.shared.unseen import Unseen

# The contract's name of each of a datum's inputs.
INPUTS = {"sampling_logprobs": "logprobs", "advantages": "advantages", "mask": "mask"}
ENDS, SPLITS = "compute_full_batch_metrics_and_get_sampling_client", "train_step"
SPLIT = "tinker_cookbook.utils.misc_utils"
ADVICE = "it was imported by name before it was watched"


def watch(module: ModuleType, monitor: Logs) -> None:
    """Post every training step of a module that trains, `tinker_cookbook.rl.train`, to `monitor`.

    Sent: mu, as it was sampled; pi, as the loss had it; advantages; the mask of what was sampled. `step` is the number
    of the batch, under which tinker-cookbook logs it; `minibatch` counts the optimizer's steps on it (`num_substeps`),
    but for streamed minibatches, which come as one; `policy_version` is the step, before each of which the sampler
    gets new weights. One process posts it all. Raises AttributeError where the module does not train. That a step's end
    is never called is said once, after three training steps, or at the end of the run.
    """
    Watch(module, monitor).attach()


class Watch:
    """Remembers into how many parts the data of the step under way was split."""

    def __init__(self, module: ModuleType, monitor: Logs) -> None:
        self.module, self.monitor = module, monitor
        self.ends, self.splits = getattr(module, ENDS), getattr(module, SPLITS)
        self.data: Any = None
        self.parts = 1
        self.unseen = Unseen(f"tinker-cookbook's {ENDS}", f"{module.__name__} is not what trains, or {ADVICE}")
        before_end(monitor, self.unseen)

    def attach(self) -> None:
        """Take the place of both functions in their module."""

        @functools.wraps(self.splits)
        async def splitting(*arguments: Any, **named: Any) -> Any:
            self.unseen.step()
            _split(self.monitor, self, arguments, named)
            return await self.splits(*arguments, **named)

        @functools.wraps(self.ends)
        async def ending(*arguments: Any, **named: Any) -> Any:
            self.unseen.forward()
            _post(self.monitor, self, arguments, named)
            return await self.ends(*arguments, **named)

        setattr(self.module, SPLITS, splitting)
        setattr(self.module, ENDS, ending)


@quiet
def _split(monitor: Logs, watch: Watch, arguments: Any, named: Any) -> None:
    given = called(watch.splits, arguments, named)
    watch.data, watch.parts = given["data_D"], given["num_substeps"]


@quiet
def _post(monitor: Logs, watch: Watch, arguments: Any, named: Any) -> None:
    given = called(watch.ends, arguments, named)
    data, pi = given["data_D"], given["training_logprobs_D"]
    # The checkpoint after a step has the number of the next one.
    step = given["i_batch"] - 1
    parts = min(watch.parts, len(data)) if data is watch.data else 1
    watch.data = None
    for minibatch, (some, theirs) in enumerate(zip(split(data, parts), split(pi, parts), strict=True)):
        numbers = {"minibatch": minibatch, "minibatches": parts, "policy_version": step}
        monitor.log(step=step, **numbers, **rows(some, theirs))


def split(items: Sequence[Any], parts: int) -> list[Sequence[Any]]:
    """The items in as many parts, as tinker-cookbook splits them."""
    if parts == 1:
        return [items]
    result: list[Sequence[Any]] = importlib.import_module(SPLIT).split_list(items, parts)
    return result


def rows(data: Sequence[Any], pi: Sequence[Any]) -> Mapping[str, list[Any]]:
    """One row [n] for each datum of Tinker, by the contract's names: what it was given, and what its forward gave."""
    sent: dict[str, list[Any]] = {
        name: [datum.loss_fn_inputs[of].to_torch() for datum in data] for name, of in INPUTS.items()
    }
    sent["mask"] = [mask > 0 for mask in sent["mask"]]
    return {**sent, "logprobs": list(pi)}
