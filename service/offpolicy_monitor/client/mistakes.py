"""Mistake: what is wrong with the arguments of one `log` call, found before anything is copied or sent.

A kind is one word that `stats` counts by and the log mentions once. Knows no arrays and no HTTP.
"""

from offpolicy_monitor.errors import OffpolicyMonitorError


class Mistake(OffpolicyMonitorError):
    """Arguments that the service would refuse; `kind` is what `stats["errors_by"]` counts it under."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Lost(OffpolicyMonitorError):
    """A batch that will not arrive: what `strict=True` raises for failures of the background thread."""
