"""offpolicy-monitor: watches the gap between the policy that sampled a rollout and the policy being trained.

This module holds the names a trainer uses and imports nothing heavy, so that it costs a training job nothing.
"""

from offpolicy_monitor._version import __version__

__all__ = ["__version__"]
