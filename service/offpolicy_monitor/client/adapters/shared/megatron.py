"""Megatron: what its optimizers tell that those of torch inside them do not, a step left out and gradients cleared.

Where a gradient is not finite, under the loss scale of float16 or by a check of its own, a Megatron optimizer does not
step the one of torch inside it: its `step` gives back `(False, None, None)`. It clears gradients without torch's
`zero_grad`. Wraps both in every class of optimizer that is there, which changes nothing else. Imports nothing.
"""

import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final
from weakref import WeakSet

MODULE: Final = "megatron.core.optimizer.optimizer"
BASE: Final = "MegatronOptimizer"

Tell = Callable[[str, Any], None]

_watched: WeakSet[type] = WeakSet()


def watch(tell: Tell) -> None:
    """`tell("stepped" or "cleared", optimizer)` from now on; nothing where Megatron is not loaded yet."""
    base: type | None = getattr(sys.modules.get(MODULE), BASE, None)
    for kind in _kinds(base) if base is not None else ():
        if kind not in _watched:
            _watched.add(kind)
            _wrap(kind, tell)


def _kinds(base: type) -> Iterator[type]:
    kind: type
    for kind in type.__subclasses__(base):
        yield kind
        yield from _kinds(kind)


def _wrap(kind: Any, tell: Tell) -> None:
    if "step" in vars(kind):
        kind.step = _stepping(kind.step, tell)
    if "zero_grad" in vars(kind):
        kind.zero_grad = _clearing(kind.zero_grad, tell)


def _stepping(step: Callable[..., Any], tell: Tell) -> Callable[..., Any]:
    @functools.wraps(step)
    def stepping(optimizer: Any, *arguments: Any, **named: Any) -> Any:
        result = step(optimizer, *arguments, **named)
        if isinstance(result, tuple) and result[:1] == (False,):
            tell("stepped", optimizer)
        return result

    return stepping


def _clearing(clear: Callable[..., Any], tell: Tell) -> Callable[..., Any]:
    @functools.wraps(clear)
    def clearing(optimizer: Any, *arguments: Any, **named: Any) -> Any:
        result = clear(optimizer, *arguments, **named)
        tell("cleared", optimizer)
        return result

    return clearing
