"""Exported: the rows of a scrape, which must come whatever the database does.

A store that is away shows no runs, and neither does one that takes too long: the process's own metrics must be seen.
"""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Protocol

import structlog

from offpolicy_monitor.errors import Unavailable
from offpolicy_monitor.exposition.runs import ExportedRun
from offpolicy_monitor.settings import Settings

log = structlog.get_logger("offpolicy_monitor.server")
#: Longest wait of a scrape for the store, seconds; a hung disk answers to no patience but this.
WITHIN: Final = 3.0


class ExportingStore(Protocol):
    """What is needed of the store."""

    def exported(self, limit: int, active_since: float) -> Sequence[ExportedRun]: ...


class Exported:
    """Asks the store in a thread of its own, until `close`; `shows` says whether it is this service that shows runs."""

    def __init__(
        self, store: ExportingStore, settings: Settings, shows: Callable[[], bool], within: float = WITHIN
    ) -> None:
        self._store, self._settings, self._shows, self._within = store, settings, shows, within
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="export")

    def __call__(self) -> Sequence[ExportedRun] | None:
        """The rows; None where another process shows them."""
        if not self._shows():
            return None
        since = time.time() - self._settings.run_expiry
        asked = self._thread.submit(self._store.exported, self._settings.max_exported_runs, since)
        try:
            return asked.result(self._within)
        except Unavailable as error:
            log.warning("scrape without runs", reason=error.detail)
        except TimeoutError:
            asked.cancel()
            log.warning("scrape without runs", reason=f"the database did not answer within {self._within:g} s")
        return ()

    def close(self) -> None:
        """Ask nothing further, and wait for nothing."""
        self._thread.shutdown(wait=False, cancel_futures=True)
