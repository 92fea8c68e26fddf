"""StoreProbe: whether shards can be stored, asked in a thread of its own and at most once per second.

A database that hangs holds up this thread alone, and whoever asks is told within `WITHIN` seconds all the same.
"""

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, Protocol

from offpolicy_monitor.errors import ConfigurationError, Unavailable
from offpolicy_monitor.pipeline.workers import guarded

#: Seconds: how long an answer is told again, and how long one is waited for.
FRESH: Final = 1.0
WITHIN: Final = 1.5
SLOW: Final = "the database did not answer within {:g} s"


class Tried(Protocol):
    """What is needed of the store."""

    def schema_is_current(self) -> bool: ...
    def try_writing(self) -> None: ...
    def ping(self) -> None: ...


@dataclass(frozen=True)
class Finding:
    """What holds, by the name of the check; and the reason where something does not."""

    checks: Mapping[str, bool]
    reason: str = ""


class StoreProbe:
    """Made inside a running event loop; `close` waits for nothing."""

    def __init__(self, store: Tried, within: float = WITHIN) -> None:
        self._store, self._within = store, within
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="probe")
        self._asking: asyncio.Future[Finding] | None = None
        self._found: Finding | None = None
        self._found_at = 0.0

    async def finding(self) -> Finding:
        """What was found within the last second, or is found now."""
        loop = asyncio.get_running_loop()
        if self._found is not None and loop.time() - self._found_at < FRESH:
            return self._found
        if self._asking is None:
            job: Callable[[], Finding] = lambda: guarded(lambda: found(self._store))  # noqa: E731
            self._asking = loop.run_in_executor(self._executor, job)
            self._asking.add_done_callback(self._keep)
        await asyncio.wait([self._asking], timeout=self._within)
        return (
            self._found
            if self._asking is None and self._found is not None
            else Finding(UNKNOWN, SLOW.format(self._within))
        )

    def close(self) -> None:
        """Ask nothing further."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _keep(self, asked: "asyncio.Future[Finding]") -> None:
        self._asking = None
        if not asked.cancelled():
            error = asked.exception()
            self._found = asked.result() if error is None else Finding(UNKNOWN, f"a defect: {type(error).__name__}")
            self._found_at = asked.get_loop().time()


UNKNOWN: Final[Mapping[str, bool]] = {"store": False, "schema": False}


def found(store: Tried) -> Finding:
    """Ask the store."""
    try:
        store.ping()
        if not store.schema_is_current():
            return Finding({"store": True, "schema": False}, "the schema is not current: offpolicy-monitor db upgrade")
        store.try_writing()
    except (Unavailable, ConfigurationError) as error:
        return Finding(UNKNOWN, str(error))
    return Finding({"store": True, "schema": True})
