"""The one form in which a time is told to anybody: answers, pages, notifications, logs."""

from datetime import UTC, datetime


def timestamp(seconds: float | None) -> str | None:
    """Unix seconds as RFC 3339 in UTC to the millisecond, such as `2026-01-05T02:41:12.250Z`; None stays None."""
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
