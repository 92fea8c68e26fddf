"""prime-rl: a custom loss that is the run's own loss, and posts the sequences that it was called with.

prime-rl calls the loss once per sequence (whole sequences, prompt included, log-probs already shifted to the token that
they belong to), tells it no step, and has no pi_old: mu and pi give the total gap. Knows the names in its LossInputs
and imports nothing of it before `own_loss` is called.
"""

import functools
import importlib
from collections.abc import Callable
from typing import Any, Final

from offpolicy_monitor.client.adapters import Logs
from offpolicy_monitor.client.adapters.shared.collector import Collector
from offpolicy_monitor.client.adapters.shared.layouts import detached
from offpolicy_monitor.client.adapters.shared.place import Place, of_process
from offpolicy_monitor.client.adapters.shared.quiet import quiet

Loss = Callable[..., Any]

# The contract's name of each field of LossInputs; all are [n], n tokens of the sequence.
FIELDS = {
    "sampling_logprobs": "inference_logprobs",
    "logprobs": "trainer_logprobs",
    "mask": "loss_mask",
    "advantages": "advantages",
}


# The classes of prime-rl's configuration by the type that stands under [trainer.loss].
TYPES: Final = {"default": "DefaultLossConfig", "ipo": "IPOLossConfig"}


def own_loss(inputs: Any, *, type: str = "default", **settings: Any) -> Any:
    """The loss that prime-rl itself makes of what stands under [trainer.loss], here under [trainer.loss.kwargs].

    Settings that are not given have prime-rl's own defaults; one that it does not know it refuses at the first loss.
    """
    return _made(type, tuple(sorted(settings.items())))(inputs)


@functools.cache
def _made(of: str, settings: tuple[tuple[str, Any], ...]) -> Loss:
    configuration = getattr(importlib.import_module("prime_rl.configs.trainer"), TYPES[of])
    make: Callable[[Any], Loss] = importlib.import_module("prime_rl.trainer.rl.loss").setup_rl_loss_fn
    return make(configuration(**dict(settings)))


def watched_loss(loss: Loss, monitor: Logs, *, first_step: int = 1, place: Place = of_process) -> Loss:
    """A loss that is `loss(inputs, **kwargs)` and posts its inputs, one shard per training step and rank.

    first_step  prime-rl counts from 1; a resumed run goes on at another
    place       which rank posts; `in_groups_of(n)` under context parallelism of n, where n ranks hold the same tokens

    Sequences that have no token of the rl component are not given to the loss: a rank that has none in a step posts
    nothing under it and goes on with the next number. A step ends where prime-rl clears its gradients, which it does
    once per step with every optimizer, those offloaded to the CPU among them, which never step or do so in parts.
    `policy_version` is the step before, as prime-rl numbers the weights that it broadcasts after every step.
    """
    collector = Collector(monitor, first_step=first_step, place=place, by_clearing=True)

    def watched(inputs: Any, **kwargs: Any) -> Any:
        _collect(monitor, collector, inputs)
        return loss(inputs, **kwargs)

    return watched


@quiet
def _collect(monitor: Logs, collector: Collector, inputs: Any) -> None:
    values = {name: getattr(inputs, of) for name, of in FIELDS.items()}
    collector.add({name: [detached(value)] for name, value in values.items() if value is not None})
