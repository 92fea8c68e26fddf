"""A time that programs may read is told in one form."""

from offpolicy_monitor.timestamps import timestamp


def test_a_time_is_rfc_3339_in_utc_to_the_millisecond() -> None:
    assert timestamp(1_700_000_060.5) == "2023-11-14T22:14:20.500Z"
    assert timestamp(0.0) == "1970-01-01T00:00:00.000Z"
    assert timestamp(None) is None
