"""Making: a monitor made in a worker, minutes into a run, where an address that is missing must not end it.

In the trainer's own process a monitor raises at once, before anything is lost; in a worker it is first needed in the
middle of a step. Knows no framework.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from offpolicy_monitor.client.adapters import Logs
from offpolicy_monitor.client.counters import LOGGER

Watching = TypeVar("Watching")


class Nowhere:
    """Takes the place of a monitor that could not be made, and sends nothing."""

    def log(self, **arguments: object) -> None:
        """Nothing."""

    def finish(self, *, for_run: bool = False) -> None:
        """Nothing."""


def made(make: Callable[[], Logs]) -> Logs:
    """`make()`, or Nowhere and a warning where it raises."""
    try:
        return make()
    except Exception as error:  # the boundary to training
        LOGGER.warning("no monitor in this worker, nothing is posted: %r", error)
        return Nowhere()


def of_each(holder: Any, new: Callable[[Any, Logs], Watching], make: Callable[[], Logs]) -> Watching:
    """What watches an object of the framework, `new(holder, monitor)`: made once, when it is first asked for.

    Not before, since what frameworks pickle into their workers is the object without it.
    """
    if "_offpolicy" not in holder.__dict__:
        holder._offpolicy = new(holder, made(make))
    watching: Watching = holder._offpolicy
    return watching
