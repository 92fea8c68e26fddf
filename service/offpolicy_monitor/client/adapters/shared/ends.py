"""Ends: a framework's own normal end, which it tells to those who listen, and what is still to be posted by then.

Where training raises, a framework tells nobody. Knows no framework.
"""

from collections.abc import Callable
from typing import Any

from offpolicy_monitor.client.adapters import Logs
from offpolicy_monitor.client.adapters.shared.quiet import quiet


@quiet
def finish(monitor: Logs, for_run: bool = False) -> None:
    """Say that the run has ended; `for_run`: for workers who cannot, from a process that has posted nothing."""
    monitor.finish(for_run=for_run)


def before_end(monitor: Logs, gathering: Any) -> None:
    """Have the monitor call `gathering.settle()` before it ends; one that ends nothing need not know how."""
    register = getattr(monitor, "before_end", None)
    if register is not None:
        register(gathering)


class Events:
    """A callback of a framework whose events are methods `on_...`: those that a subclass does not have do nothing."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        if not name.startswith("on_"):
            raise AttributeError(name)
        return _nothing


class AtEnd(Events):
    """A callback that says that the run has ended when training has."""

    def __init__(self, monitor: Logs, for_run: bool = False) -> None:
        self.monitor, self.for_run = monitor, for_run

    def on_train_end(self, *arguments: Any, **named: Any) -> None:
        """Training is through."""
        finish(self.monitor, self.for_run)


def _nothing(*arguments: Any, **named: Any) -> None:
    """Every other event."""
