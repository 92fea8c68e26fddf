"""When to try again: waits that double within bounds, and what Retry-After asks for."""

import pytest
from offpolicy_monitor.retry import asked_for, doubled

NOW = 784111777.0  # Sun, 06 Nov 1994 08:49:37 GMT


@pytest.mark.parametrize(("failures", "most"), [(1, 0.5), (2, 1.0), (3, 2.0), (5, 8.0), (6, 10.0), (5000, 10.0)])
def test_a_wait_doubles_up_to_the_longest_and_chance_takes_up_to_half_of_it(failures: int, most: float) -> None:
    assert [doubled(failures, 0.5, 10.0, chance) for chance in (0.0, 0.5, 1.0)] == [most / 2, most * 0.75, most]


def test_retry_after_is_a_number_or_a_date() -> None:
    assert asked_for("120", NOW) == 120.0
    assert asked_for(" 0 ", NOW) == 0.0
    assert asked_for("Sun, 06 Nov 1994 08:50:07 GMT", NOW) == 30.0
    assert asked_for("Sun, 06 Nov 1994 08:49:27 GMT", NOW) == 0.0


@pytest.mark.parametrize("header", [None, "", "soon", "-5", "1.5", "Sun, 99 Nov 1994", "²"])
def test_a_header_that_cannot_be_read_asks_for_nothing(header: str | None) -> None:
    assert asked_for(header, NOW) is None
