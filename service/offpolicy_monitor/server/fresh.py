"""Fresh: answers about runs that somebody has looked at lately, made again as soon as a step has come.

So a page that is opened then, or that is told of the step, finds what takes longest at hand. While nobody looks
nothing is asked of the database, and of its time this takes no more than SHARE.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, Protocol

from offpolicy_monitor.errors import Refusal, Unavailable
from offpolicy_monitor.interpreter import computing

#: Seconds for which somebody who has looked at a run may look again.
LOOKED: Final = 600.0
#: Seconds from one look for runs that have moved to the next.
EVERY: Final = 0.2
#: The most of its time that this takes: of runs that move more often some answers are made when they are asked for.
SHARE: Final = 0.2


class AnsweringStore(Protocol):
    """What is needed of the store."""

    def moved(self, since: float) -> list[str]: ...
    def read_again(self, run: str, since: float) -> None: ...


class Fresh:
    """`said(run)` reads what is said of a run, which keeps by itself what it has read."""

    def __init__(self, store: AnsweringStore, said: Callable[[str], object]) -> None:
        self._store, self._said = store, said

    def make(self) -> int:
        """Make the answers of runs that have moved again; answers of how many runs."""
        since = time.monotonic() - LOOKED
        made = 0
        with suppress(Unavailable):  # who asks is told
            for run in self._store.moved(since):
                with suppress(Refusal), computing():  # deleted meanwhile, or it has no such step any more
                    self._store.read_again(run, since)
                    self._said(run)
                made += 1
        return made


async def rested(work: Callable[[], Awaitable[int]]) -> int:
    """Do the work, and where there was any, rest for so long that it takes no more than SHARE of the time."""
    began = time.monotonic()
    done = await work()
    if done:
        await asyncio.sleep((time.monotonic() - began) * (1 / SHARE - 1))
    return done
