"""The one form in which a time is told where programs may read it: answers, notifications, logs.

Sentences and the foot of a report are for people, and tell it shorter, to the minute: verdict.numbers, pages.report.
"""

from datetime import UTC, datetime


def timestamp(seconds: float | None) -> str | None:
    """Unix seconds as RFC 3339 in UTC to the millisecond, such as `2026-01-05T02:41:12.250Z`; None stays None."""
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
