"""The trainer side: everything that a training process imports to be watched.

It needs numpy and the standard library alone, never blocks training and never raises into it. It knows the wire and
nothing of what is computed from it.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from offpolicy_monitor.client.monitor import Monitor

__all__ = ["Monitor"]


def __getattr__(name: str) -> object:
    """Import what logs, and numpy with it, when it is asked for: questions are asked without."""
    if name == "Monitor":
        from offpolicy_monitor.client.monitor import Monitor

        return Monitor
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
