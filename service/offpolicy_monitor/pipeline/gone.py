"""Gone: whether anybody still waits for an answer. Knows neither HTTP nor what is asked."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from offpolicy_monitor.errors import Refusal

Result = TypeVar("Result")
#: Done once nobody waits for the answer any more.
Gone = asyncio.Future[None]


def is_gone(gone: Gone | None) -> bool:
    """Whether nobody waits for the answer any more; may be asked from any thread."""
    return gone is not None and gone.done()


def present(gone: Gone | None, job: Callable[[], Result]) -> Callable[[], Result]:
    """The job, which does nothing for one who no longer waits for it."""

    def run() -> Result:
        if is_gone(gone):
            raise client_gone()
        return job()

    return run


def client_gone() -> Refusal:
    """Nobody waits for the answer; what it says reaches only the counter and the log."""
    return Refusal(400, "client-disconnected", "the connection ended before the batch was measured; it is not stored")
