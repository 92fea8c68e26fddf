"""Optimizers: what a process hears of all of its optimizers, that they stepped and that they cleared their gradients.

torch tells of steps to whoever registers; clearing is told by a wrapper around `Optimizer.zero_grad`, put there once
per process, which changes nothing else. An optimizer that is not torch's own is heard through those of torch inside it,
and one of Megatron by itself too (`megatron`). Imports torch when somebody listens.
"""

import functools
import importlib
from typing import Any, Protocol
from weakref import WeakSet

from offpolicy_monitor.client.adapters.shared import megatron


class Hears(Protocol):
    """Whoever is told of every optimizer of the process; must not raise."""

    def stepped(self, optimizer: Any) -> None:
        """It has stepped, or said that it leaves its step out."""
        ...

    def cleared(self, optimizer: Any) -> None:
        """It has cleared its gradients."""
        ...


# Listeners are not kept alive by listening. None before the first one.
_listeners: WeakSet[Hears] | None = None


def listen(listener: Hears) -> None:
    """Tell `listener` from now on, as long as it lives.

    Call it again when work is done: an optimizer of Megatron is heard once its module is loaded.
    """
    global _listeners
    if _listeners is None:
        _listeners = WeakSet()
        _attach(importlib.import_module("torch.optim.optimizer"))
    _listeners.add(listener)
    megatron.watch(_tell)


def _attach(module: Any) -> None:
    module.register_optimizer_step_post_hook(lambda optimizer, *_: _tell("stepped", optimizer))
    clear = module.Optimizer.zero_grad

    @functools.wraps(clear)
    def zero_grad(optimizer: Any, *arguments: Any, **named: Any) -> Any:
        result = clear(optimizer, *arguments, **named)
        _tell("cleared", optimizer)
        return result

    module.Optimizer.zero_grad = zero_grad


def _tell(what: str, optimizer: Any) -> None:
    for listener in list(_listeners or ()):
        getattr(listener, what)(optimizer)


def at_rest(optimizer: Any) -> bool:
    """Whether every learning rate is the number 0, so that a step changes nothing.

    Checkpoints of torch step so once, to make the state that they load into. A rate that is a tensor on a device is
    not waited for, and counts as one that moves.
    """
    rates = [group.get("lr", 1.0) for group in optimizer.param_groups]
    return all(str(getattr(rate, "device", "cpu")) == "cpu" and float(rate) == 0.0 for rate in rates)
