"""Counters: what became of every batch that was logged, and one line in the log for each kind of trouble.

logged = sent + pending + dropped + errors, but for a batch that is just changing hands. Used by several threads; knows
no queue and no HTTP.
"""

import logging
import threading
from collections import Counter
from typing import Any

LOGGER = logging.getLogger("offpolicy_monitor")
NAMES = ("logged", "sent", "duplicates", "retries", "sent_bytes")


class Counters:
    """Counts by name, `dropped` and `errors` by reason, and the last thing that went wrong."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._dropped: Counter[str] = Counter()
        self._errors: Counter[str] = Counter()
        self._told: set[str] = set()
        self.last_error: str | None = None

    def add(self, name: str, count: int = 1) -> None:
        """Count one of NAMES."""
        with self._lock:
            self._counts[name] += count

    def drop(self, reason: str, message: str, count: int = 1) -> None:
        """Count batches that were given up though nothing was wrong with them."""
        with self._lock:
            self._dropped[reason] += count
        self.tell(reason, message)

    def refuse(self, kind: str, message: str) -> None:
        """Count a batch that is at fault, or that the service will never take."""
        with self._lock:
            self._errors[kind] += 1
        self.tell(kind, message)

    def tell(self, kind: str, message: str) -> None:
        """Remember it, and log it unless its kind was logged before."""
        with self._lock:
            self.last_error = message
            known = kind in self._told
            self._told.add(kind)
        if not known:
            LOGGER.warning("%s: %s (said once; monitor.stats counts)", kind, message)

    def read(self) -> dict[str, Any]:
        """All counts, consistent with each other."""
        with self._lock:
            return {
                **{name: self._counts[name] for name in NAMES},
                "dropped": self._dropped.total(),
                "errors": self._errors.total(),
                "dropped_by": dict(self._dropped),
                "errors_by": dict(self._errors),
                "last_error": self.last_error,
            }
