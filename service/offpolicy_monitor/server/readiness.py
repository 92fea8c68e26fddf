"""Readiness: what keeps the service from its work now and why, check by check; the log says so until nothing does.

Asks the store's probe, the device's first measurement and the ages of what is in the pipeline. Knows no HTTP.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Timer
from typing import Any, Final

import structlog

from offpolicy_monitor.server.probe import Finding

log = structlog.get_logger("offpolicy_monitor.server")
WARMING: Final = (
    "the device measures a first batch, and what the list, a scrape and a page show is read, to load what they need"
)
UNASKED: Final = "not known before the database answers"
#: Seconds between two looks until the service is ready, and after which the same is said again.
LOOK_SECONDS, SAY_SECONDS = 0.5, 30.0
#: Seconds after which a step of the start says what it waits for.
LATE_SECONDS: Final = 2.0


@dataclass(frozen=True)
class State:
    """What holds by the name of the check, why the others do not, and stuck stages by the age of their oldest job."""

    checks: Mapping[str, bool]
    reasons: Mapping[str, str]
    stuck: Mapping[str, float] = field(default_factory=dict)

    @property
    def ready(self) -> bool:
        return not self.reasons

    def plain(self) -> dict[str, Any]:
        """What siblings are told."""
        return {"reasons": self.reasons, "stuck": self.stuck}


def of_all(own: State, others: Mapping[int, Mapping[str, Any]]) -> State:
    """What holds of all workers: the own state, and those of siblings by their numbers, as `State.plain` has them."""
    checks, reasons, stuck = dict(own.checks), dict(own.reasons), dict(own.stuck)
    for number, other in others.items():
        for name, reason in other["reasons"].items():
            checks[name] = False
            reasons.setdefault(name, f"worker {number + 1}: {reason}")
        for stage, age in other["stuck"].items():
            stuck[stage] = max(age, stuck.get(stage, 0.0))
    return State(checks, reasons, stuck)


class Readiness:
    """Of one service; `device` is why its device cannot measure, None once it has."""

    def __init__(
        self,
        ask_store: Callable[[], Awaitable[Finding]],
        oldest_jobs: Callable[[], Mapping[str, float]],
        max_job_age: float,
        setting: str,
    ) -> None:
        self._ask_store, self._oldest_jobs = ask_store, oldest_jobs
        self._max_job_age, self._setting = max_job_age, setting
        self.device: str | None = WARMING

    async def look(self) -> State:
        """What holds now."""
        store = await self._ask_store()
        stuck = {stage: round(age, 1) for stage, age in self._oldest_jobs().items() if age > self._max_job_age}
        checks = {**store.checks, "device": self.device is None, "stages": not stuck}
        reasons = {name: store.reason for name, holds in store.checks.items() if not holds}
        if len(reasons) > 1:
            reasons["schema"] = UNASKED
        if self.device is not None:
            reasons["device"] = self.device
        if stuck:
            jobs = ", ".join(f"{stage} for {age:g} s" for stage, age in stuck.items())
            limit = f"{self._setting} is {self._max_job_age:g} s"
            reasons["stages"] = f"a job does not get on: {jobs}; {limit}. Restart the service where it stays so"
        return State(checks, reasons, stuck)

    async def tell(self, began: float, form: Callable[[], str]) -> None:
        """Log what is waited for, and that nothing is any more; `began` is of the monotonic clock."""
        said: Mapping[str, str] = {}
        said_at = 0.0
        while not (state := await self.look()).ready:
            now = time.monotonic()
            if state.reasons.keys() != said.keys() or now - said_at > SAY_SECONDS:
                log.info("not ready yet", **state.reasons)
                said, said_at = state.reasons, now
            await asyncio.sleep(LOOK_SECONDS)
        log.info("ready", seconds=round(time.monotonic() - began, 1), measured_by=form())


@contextmanager
def waited_for(what: str, seconds: float = LATE_SECONDS) -> Iterator[None]:
    """A step of the start: where it takes longer than usual, the log says what is waited for."""
    late = Timer(seconds, lambda: log.info("still starting", waits_for=what))
    late.daemon = True
    late.start()
    try:
        yield
    finally:
        late.cancel()
