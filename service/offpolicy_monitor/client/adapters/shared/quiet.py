"""quiet: a framework that changed under an adapter costs its figures, never the training run.

Whatever an adapter raises while it reads the framework's objects is logged, once for each function. A monitor that is
strict gets it raised, so that tests see it.
"""

import functools
from collections.abc import Callable
from typing import Concatenate, ParamSpec

from offpolicy_monitor.client.adapters import Logs
from offpolicy_monitor.client.counters import LOGGER

P = ParamSpec("P")


def quiet(post: Callable[Concatenate[Logs, P], object]) -> Callable[Concatenate[Logs, P], None]:
    """`post(monitor, ...)` that never raises, unless `monitor.strict`; the first failure is a warning in the log."""
    told: list[Exception] = []

    @functools.wraps(post)
    def guarded(monitor: Logs, /, *arguments: P.args, **named: P.kwargs) -> None:
        try:
            post(monitor, *arguments, **named)
        except Exception as error:  # the boundary to training
            if getattr(monitor, "strict", False):
                raise
            if not told:
                told.append(error)
                LOGGER.warning("%s.%s posts nothing: %r", post.__module__, post.__qualname__, error)

    return guarded
