"""Summaries of steps for who shows or judges them: one that cannot be read is passed over, and the log says so once.

A newer release may have written it, or it is damaged; the rest of its run and all other runs are there all the same. A
summary that is to go into another is read by summary.stored itself, which raises: it would be lost by that.
"""

import hashlib
from collections.abc import Callable
from functools import lru_cache
from typing import Final, TypeVar

import structlog

from offpolicy_monitor.summary.stored import StoredSummaryError

Found = TypeVar("Found")
log = structlog.get_logger("offpolicy_monitor.store")
#: Summaries of which it is known that it was said.
MOST_SAID: Final = 1024


def readable(read: Callable[[bytes], Found], summary: bytes, step: int | None) -> Found | None:
    """What `read` makes of a stored summary; None where it raises StoredSummaryError. `step` is told."""
    try:
        return read(summary)
    except StoredSummaryError as error:
        _say(hashlib.sha256(summary).digest(), step, str(error))
        return None


@lru_cache(MOST_SAID)
def _say(of: bytes, step: int | None, reason: str) -> None:
    log.error("a step is shown without its figures", step=step, reason=reason)
