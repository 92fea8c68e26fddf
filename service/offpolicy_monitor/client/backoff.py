"""Back-off: how long to wait before the next attempt.

Doubles from attempt to attempt and is drawn at random, so that a thousand ranks do not come back at once; a service
that says when to come back is believed, within bounds, and not before: those that were told the same time come back
spread over a while. Pure functions of what they are given.
"""

import random
import time

FIRST = 0.25  # seconds
LONGEST = 10.0  # seconds: how late a service that came back is noticed
LONGEST_ASKED = 300.0  # seconds: no header may ask for more
SPREAD = 0.25  # of what was asked for, but at least LEAST_SPREAD seconds: what is waited beyond it at random
LEAST_SPREAD = 1.0


def delay(attempts: int, retry_after: str | None, now: float | None = None) -> float:
    """Seconds to wait after `attempts` failures (1 or more): a random half to all of FIRST * 2^(attempts - 1).

    At most LONGEST, unless `Retry-After` (seconds or an HTTP date) asks for more: then that, and some more at random.
    """
    own = min(FIRST * 2.0 ** min(attempts - 1, 30), LONGEST) * random.uniform(0.5, 1.0)
    asked = min(asked_for(retry_after, time.time() if now is None else now), LONGEST_ASKED)
    if asked <= 0:
        return own
    return max(own, asked + random.uniform(0.0, max(SPREAD * asked, LEAST_SPREAD)))


def asked_for(retry_after: str | None, now: float) -> float:
    """Seconds from `now` that a Retry-After header asks for; 0 where there is none or it cannot be read."""
    text = (retry_after or "").strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    from email.utils import parsedate_to_datetime

    try:
        return max(parsedate_to_datetime(text).timestamp() - now, 0.0) if text else 0.0
    except (TypeError, ValueError):
        return 0.0
