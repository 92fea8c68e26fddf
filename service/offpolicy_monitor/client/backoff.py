"""Back-off: how long a trainer waits before it tries again.

A thousand ranks must not come back at once, so waits are drawn at random; a service that says when to come back is
believed, within bounds, and not before: those that were told the same time come back spread over a while.
"""

import random
import time

from offpolicy_monitor.retry import asked_for, doubled

FIRST = 0.25  # seconds
LONGEST = 10.0  # seconds: how late a service that came back is noticed
LONGEST_ASKED = 300.0  # seconds: no header may ask for more
SPREAD = 0.25  # of what was asked for, but at least LEAST_SPREAD seconds: what is waited beyond it at random
LEAST_SPREAD = 1.0


def delay(failures: int, retry_after: str | None, now: float | None = None) -> float:
    """Seconds to wait after so many failures (1 or more): a random half to all of FIRST * 2^(failures - 1).

    At most LONGEST, unless `Retry-After` (seconds or an HTTP date) asks for more: then that, and some more at random.
    """
    own = doubled(failures, FIRST, LONGEST, random.random())
    asked = min(asked_for(retry_after, time.time() if now is None else now) or 0.0, LONGEST_ASKED)
    if asked <= 0:
        return own
    return max(own, asked + random.uniform(0.0, max(SPREAD * asked, LEAST_SPREAD)))
