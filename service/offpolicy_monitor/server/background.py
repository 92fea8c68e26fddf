"""What runs beside the requests: warming up once, and chores, each a row: what it does every so many seconds.

Boundaries: nothing that fails in here may end the process or be lost, so every failure is logged and survived.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import structlog

from offpolicy_monitor.errors import Unavailable

log = structlog.get_logger("offpolicy_monitor.server")


@dataclass(frozen=True)
class Chore:
    """A chore by name; where it did something, `said` is logged at `level` with the number as `counted`."""

    name: str
    said: str
    counted: str
    level: str = "info"


#: Close steps whose missing shards are overdue, so that gauges and answers count them.
SWEEP: Final = Chore("sweep", "steps closed without all their shards", "steps")
#: Judge runs by the wall clock, so that silence is told though nothing arrives.
WATCH: Final = Chore("watch", "alerts on the wall clock changed", "runs")
#: Remove what is left of deleted runs.
PURGE: Final = Chore("purge", "rows of deleted runs removed", "portions")
#: Make steps small that have grown old, and give the room back.
TIDY: Final = Chore("tidying", "old steps made small", "changes")
#: Put the headline figures of old steps into columns, which plots over all of a long run read.
COLUMNS: Final = Chore("putting figures into columns", "headline figures of old steps put into columns", "steps")
#: Read the access tokens, so that new and revoked ones are known.
LEARN: Final = Chore("reading access tokens", "access tokens read", "tokens", "debug")
#: Write down which were used.
NOTE: Final = Chore("noting the use of access tokens", "use of access tokens noted", "tokens", "debug")
#: Write down what was counted, which a worker that dies leaves to who takes its place.
PUBLISH: Final = Chore("writing counts", "counts written", "files", "debug")
#: Ask once what scrapes and pages ask.
REHEARSE: Final = Chore("reading what scrapes and pages ask", "answers read", "answers", "debug")
#: Have as many processes beside the service as small shards want that come side by side.
HELP: Final = Chore("starting processes", "processes measure small shards beside the service", "started")
#: Give back what the process has grown by and does not use.
GIVE_BACK: Final = Chore("memory", "unused memory given back", "bytes", "debug")
#: Make answers about runs that somebody looks at again, after each step.
FRESH: Final = Chore("making answers again", "answers about runs that moved made again", "runs", "debug")


async def warm_up(measure_once: Callable[[], Awaitable[None]], is_warm: Callable[[Exception | None], None]) -> None:
    """Measure a small batch, and tell how it went: one that cannot measure says so and is never ready."""
    try:
        await measure_once()
    except Exception as error:  # whatever a device raises
        log.error("the device cannot measure", exc_info=error)
        is_warm(error)
    else:
        is_warm(None)


async def keep(chore: Chore, work: Callable[[], Awaitable[int]], interval: float) -> None:
    """Do the chore's `work` every `interval` seconds, and say what it did where its answer is not 0."""
    while True:
        await asyncio.sleep(interval)
        await once(chore, work)


async def once(chore: Chore, work: Callable[[], Awaitable[int]]) -> None:
    """Do it now."""
    try:
        done = await work()
    except Unavailable as error:
        log.warning(f"{chore.name} put off", reason=error.detail)
    except Exception as error:  # a boundary: the service goes on, and it is done next time
        log.error(f"{chore.name} failed", exc_info=error)
    else:
        if done:
            getattr(log, chore.level)(chore.said, **{chore.counted: done})
