"""Calls: which calls of a function are to be counted, and what a function within another one returned.

A loss that is recomputed for its gradient (activation checkpointing) is called once in the forward pass and once more
in the backward pass, with the same sequences. Knows no framework.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


def in_backward() -> bool:
    """Whether autograd is running a backward pass, as it does while it recomputes what was checkpointed.

    By the number of its task, which torch's own checkpointing asks for too; a torch without it is taken to be forward.
    """
    torch = sys.modules.get("torch")
    task = getattr(getattr(torch, "_C", None), "_current_graph_task_id", None)
    return task is not None and task() != -1


@contextmanager
def results_of(module: Any, name: str) -> Iterator[list[Any]]:
    """What a module's function returned, call by call, to those who find it in that module while this lasts."""
    function, results = getattr(module, name, None), list[Any]()
    if function is None:
        yield results
        return

    def kept(*arguments: Any, **named: Any) -> Any:
        result = function(*arguments, **named)
        results.append(result)
        return result

    setattr(module, name, kept)
    try:
        yield results
    finally:
        setattr(module, name, function)
