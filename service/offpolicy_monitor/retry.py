"""When to try again what failed: waits that double, with jitter, and what a Retry-After header asks for.

Pure functions of what they are given; how long and how often is the business of who tries.
"""


def doubled(failures: int, first: float, longest: float, chance: float) -> float:
    """Seconds to wait after so many failures in a row (1 or more): first * 2^(failures - 1), at most `longest`.

    Half of that where `chance` is 0, all of it where it is 1: drawn at random, it keeps many senders that failed
    together from coming back together.
    """
    return min(first * 2.0 ** min(failures - 1, 30), longest) * (1 + chance) / 2


def asked_for(retry_after: str | None, now: float) -> float | None:
    """Seconds from `now` that a Retry-After header asks for, as a number or a date; None where it cannot be read."""
    text = (retry_after or "").strip()
    if text.isascii() and text.isdigit():
        return float(text)
    from email.utils import parsedate_to_datetime  # slow to import, and dates are rare

    try:
        return max(parsedate_to_datetime(text).timestamp() - now, 0.0)
    except (TypeError, ValueError):
        return None
