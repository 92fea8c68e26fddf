"""The trainer side: everything that a training process imports to be watched.

It needs numpy and the standard library alone, never blocks training and never raises into it. It knows the wire and
nothing of what is computed from it.
"""

from offpolicy_monitor.client.monitor import Monitor

__all__ = ["Monitor"]
