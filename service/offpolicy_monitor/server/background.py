"""What runs beside the requests: warming up once, closing overdue steps, watching the clock, removing deleted runs.

Boundaries: nothing that fails in here may end the process or be lost, so every failure is logged and survived.
"""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from offpolicy_monitor.errors import Unavailable
from offpolicy_monitor.server.memory import Idle

log = structlog.get_logger("offpolicy_monitor.server")


async def warm_up(measure_once: Callable[[], Awaitable[None]], is_warm: Callable[[], None]) -> None:
    """Measure a small batch; then the service is ready. One that cannot measure says so and never is."""
    try:
        await measure_once()
    except Exception as error:
        log.error("the device cannot measure", exc_info=error)
        return
    is_warm()


async def keep_sweeping(sweep: Callable[[], Awaitable[int]], interval: float) -> None:
    """Every `interval` seconds close steps whose missing shards are overdue, so that gauges and answers count them."""
    while True:
        closed = await _next("sweep", sweep, interval)
        if closed:
            log.info("steps closed without all their shards", steps=closed)


async def keep_watching(watch: Callable[[], Awaitable[int]], interval: float) -> None:
    """Every `interval` seconds judge runs by the wall clock, so that silence is told though nothing arrives."""
    while True:
        changed = await _next("watch", watch, interval)
        if changed:
            log.info("alerts on the wall clock changed", runs=changed)


async def keep_purging(purge: Callable[[], Awaitable[int]], interval: float) -> None:
    """Every `interval` seconds remove what is left of deleted runs."""
    while True:
        portions = await _next("purge", purge, interval)
        if portions:
            log.info("rows of deleted runs removed", portions=portions)


async def keep_tidying(tidy: Callable[[], Awaitable[int]], interval: float) -> None:
    """Every `interval` seconds make steps small that have grown old, and give the room back."""
    while True:
        changed = await _next("tidying", tidy, interval)
        if changed:
            log.info("old steps made small", changes=changed)


async def keep_small(idle: Idle, interval: float) -> None:
    """Every `interval` seconds give back what the process has grown by and does not use."""

    async def give_back() -> int:
        return await asyncio.to_thread(idle.give_back)

    while True:
        given = await _next("memory", give_back, interval)
        if given:
            log.debug("unused memory given back", bytes=given)


async def _next(name: str, work: Callable[[], Awaitable[int]], interval: float) -> int:
    """What the work answers after `interval` seconds; 0 where it fails, which is logged."""
    await asyncio.sleep(interval)
    try:
        return await work()
    except Unavailable as error:
        log.warning(f"{name} put off", reason=error.detail)
    except Exception as error:
        log.error(f"{name} failed", exc_info=error)
    return 0
