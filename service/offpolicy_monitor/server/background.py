"""What runs beside the requests: warming the device up once, and closing overdue steps for as long as the service runs.

Boundaries: nothing that fails in here may end the process or be lost, so every failure is logged and survived.
"""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from offpolicy_monitor.errors import Unavailable

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
        await asyncio.sleep(interval)
        try:
            closed = await sweep()
        except Unavailable as error:
            log.warning("sweep put off", reason=error.detail)
        except Exception as error:
            log.error("sweep failed", exc_info=error)
        else:
            if closed:
                log.info("steps closed without all their shards", steps=closed)
