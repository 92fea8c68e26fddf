"""offpolicy-monitor: watches the gap between the policy that sampled a rollout and the policy being trained.

This module holds the names a trainer uses and imports nothing heavy, so that it costs a training job nothing.
"""

from typing import TYPE_CHECKING

from offpolicy_monitor._version import __version__

if TYPE_CHECKING:
    from offpolicy_monitor.client.monitor import Monitor

__all__ = ["Monitor", "__version__"]


def __getattr__(name: str) -> object:
    """Import the client, and numpy with it, when it is asked for: the service's own modules are imported without."""
    if name == "Monitor":
        from offpolicy_monitor.client.monitor import Monitor

        return Monitor
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
