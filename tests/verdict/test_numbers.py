"""Numbers are written alike everywhere: two digits, true superscripts, no 0 % or 100 % for what is neither."""

import pytest
from offpolicy_monitor.verdict.numbers import clock, duration, number, percent, ratio


@pytest.mark.parametrize(
    "value, written",
    [
        (0.0, "0"), (9.1e-5, "9.1×10⁻⁵"), (7e-5, "7×10⁻⁵"), (1e-4, "10⁻⁴"), (3.14e-12, "3.1×10⁻¹²"),
        (0.001, "0.001"), (0.00184, "0.0018"), (0.31, "0.31"), (0.999, "1"), (12.3, "12"), (123.4, "123"),
        (4321.0, "4,321"), (-0.02, "−0.02"), (-2.5e-6, "−2.5×10⁻⁶"),
    ],
)  # fmt: skip
def test_a_number_has_two_digits(value: float, written: str) -> None:
    assert number(value) == written


@pytest.mark.parametrize(
    "share, written",
    [
        (0.0, "0%"), (1.0, "100%"), (0.0004, "<0.1%"), (0.004, "0.4%"), (0.01, "1%"), (0.059, "5.9%"), (0.0994, "9.9%"),
        (0.0996, "10%"), (0.31, "31%"), (0.996, ">99%"), (0.99, "99%"), (-0.05, "−5.0%"), (1.2, "120%"),
    ],
)  # fmt: skip
def test_a_share_is_never_none_or_all_where_it_is_neither(share: float, written: str) -> None:
    assert percent(share) == written


@pytest.mark.parametrize(
    "value, base, written",
    [(1.6, 1.0, "1.6×"), (9.96, 1, "10×"), (41.2, 1.0, "41×"), (5000, 1, "over 1,000×"), (1.0, 0.0, None)],
)
def test_a_ratio_is_told_of_what_can_be_compared(value: float, base: float, written: str | None) -> None:
    assert ratio(value, base) == written


@pytest.mark.parametrize(
    "seconds, written", [(0.25, "0.25 s"), (4, "4 s"), (89, "89 s"), (720, "12 min"), (9000, "2.5 h")]
)
def test_a_duration_has_the_unit_that_tells_most(seconds: float, written: str) -> None:
    assert duration(seconds) == written


def test_a_time_has_its_date_where_it_is_not_today() -> None:
    assert clock(1_767_391_380, 1_767_391_400) == "22:03 UTC"
    assert clock(1_767_391_380, 1_767_491_400) == "22:03 UTC on 2026-01-02"
